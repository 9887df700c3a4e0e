package dataset

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

const (
	askedAndAnswered = `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}`
	wholeMessages    = `[{"role":"system","content":"s"},{"role":"user","content":"q <b>東京</b>"},{"role":"assistant","content":"","weight":0},` +
		`{"role":"user","content":"r"},{"role":"assistant","content":" a","prefix":"<mem></mem>","weight":1}]`
)

func wantWhole() []DemonstrationMessage {
	return []DemonstrationMessage{
		{Role: RoleSystem, Content: "s"},
		{Role: RoleUser, Content: "q <b>東京</b>"},
		{Role: RoleAssistant},
		{Role: RoleUser, Content: "r"},
		{Role: RoleAssistant, Content: " a", Prefix: "<mem></mem>", Trained: true},
	}
}

func TestLoadDemonstrations(t *testing.T) {
	first := write(t, "a.jsonl", "\xef\xbb\xbf"+askedAndAnswered+"\r\n\n"+`{"id":7,"messages":`+wholeMessages+`}`)
	second := write(t, "b.json", `[{"messages":[{"role":"system","content":""},{"role":"user","content":"q"},{"role":"assistant","content":"a","prefix":null,"weight":null,"name":null}]}]`)
	set, err := LoadDemonstrations([]string{first, second})
	if err != nil {
		t.Fatal(err)
	}
	short := []DemonstrationMessage{{Role: RoleUser, Content: "q"}, {Role: RoleAssistant, Content: "a", Trained: true}}
	want := []Demonstration{
		{first + ": line 1", short},
		{first + ": line 3", wantWhole()},
		{second + ": element 1", append([]DemonstrationMessage{{Role: RoleSystem}}, short...)},
	}
	if !reflect.DeepEqual(set.Demonstrations, want) {
		t.Errorf("got  %+v\nwant %+v", set.Demonstrations, want)
	}
}

func TestDemonstrationsOfParquet(t *testing.T) {
	type message struct {
		Role    string  `parquet:"role"`
		Content string  `parquet:"content"`
		Weight  *int32  `parquet:"weight,optional"`
		Prefix  *string `parquet:"prefix,optional"`
	}
	type row struct {
		Messages []message `parquet:"messages,list"`
		Source   string    `parquet:"source"`
	}
	zero, one, prefix := int32(0), int32(1), "<mem></mem>"
	path := writeParquet(t, []row{{Source: "x", Messages: []message{
		{Role: "system", Content: "s"},
		{Role: "user", Content: "q <b>東京</b>"},
		{Role: "assistant", Weight: &zero},
		{Role: "user", Content: "r"},
		{Role: "assistant", Content: " a", Prefix: &prefix, Weight: &one},
	}}})
	set, err := LoadDemonstrations([]string{path})
	if err != nil || !reflect.DeepEqual(set.Demonstrations[0].Messages, wantWhole()) {
		t.Errorf("got %+v, %v", set, err)
	}
	broken := writeParquet(t, []row{{Messages: []message{{Role: "user", Content: "q\xff"}, {Role: "assistant", Content: "a"}}}})
	if _, err := LoadDemonstrations([]string{broken}); err == nil || !strings.Contains(err.Error(), "row 1: messages.0.content holds bytes that are not UTF-8") {
		t.Errorf("broken UTF-8: %v", err)
	}
}

func TestLoadDemonstrationsRefuses(t *testing.T) {
	const user, answer = `{"role":"user","content":"q"}`, `{"role":"assistant","content":"a"}`
	messages := func(list ...string) string { return `{"messages":[` + strings.Join(list, ",") + `]}` }
	for name, c := range map[string]struct {
		content string
		want    []string // in the message
	}{
		"empty file":           {"", []string{"holds no demonstration", `{"messages"`}},
		"broken line":          {askedAndAnswered + "\n" + `{"messages":[`, []string{"line 2: broken JSON"}},
		"array of strings":     {`["a"]`, []string{"element 1: is a JSON string, want an object such as", `{"messages"`}},
		"no messages column":   {`{"prompt":"q"}`, []string{"line 1: no messages; columns found: prompt", `{"messages"`}},
		"messages null":        {`{"messages":null}`, []string{"line 1: no messages"}},
		"messages a string":    {`{"messages":"q"}`, []string{"line 1: messages is the string", `want a list of {"role", "content"}`}},
		"no message":           {messages(), []string{"messages is a list of 0", "want a list"}},
		"message a string":     {messages(`"q"`), []string{`messages.0 is the string "q", want {"role", "content"}`}},
		"no role":              {messages(`{"content":"q"}`), []string{"messages.0.role is null, want a string"}},
		"no content":           {messages(user, `{"role":"assistant"}`), []string{"messages.1.content is null, want a string"}},
		"content a list":       {messages(`{"role":"user","content":[{"type":"text"}]}`), []string{"messages.0.content is a list of 1, want a string"}},
		"role a number":        {messages(`{"role":1,"content":"q"}`), []string{"messages.0.role is the number 1, want a string"}},
		"unknown role":         {messages(user, answer, `{"role":"tool","content":"r"}`, answer), []string{`messages.2.role is "tool", allowed are system, user and assistant`}},
		"unknown key":          {messages(user, `{"role":"assistant","content":"a","wieght":0}`), []string{`messages.1 has the key "wieght", allowed are role, content, weight, prefix`}},
		"weight between":       {messages(user, `{"role":"assistant","content":"a","weight":0.5}`), []string{"messages.1.weight is the number 0.5, allowed are 0 and 1"}},
		"weight a string":      {messages(user, `{"role":"assistant","content":"a","weight":"1"}`), []string{`messages.1.weight is the string "1", allowed`}},
		"weight a switch":      {messages(user, `{"role":"assistant","content":"a","weight":true}`), []string{"messages.1.weight is true, allowed"}},
		"weight beyond all":    {messages(user, `{"role":"assistant","content":"a","weight":1e999}`), []string{"messages.1.weight is the number 1e999"}},
		"weight of the user":   {messages(`{"role":"user","content":"q","weight":0}`, answer), []string{"messages.0.weight belongs to messages of the assistant, this one is of the user"}},
		"prefix of the user":   {messages(`{"role":"user","content":"q","prefix":"p"}`, answer), []string{"messages.0.prefix belongs to messages of the assistant"}},
		"prefix a number":      {messages(user, `{"role":"assistant","content":"a","prefix":1}`), []string{"messages.1.prefix is the number 1, want a string"}},
		"assistant first":      {messages(answer), []string{`messages.0.role is "assistant", want "user": a system message may come first`}},
		"two users in a row":   {messages(user, user, answer), []string{`messages.1.role is "user", want "assistant"`}},
		"two assistants":       {messages(user, answer, answer), []string{`messages.2.role is "assistant", want "user"`}},
		"system in the middle": {messages(user, answer, `{"role":"system","content":"s"}`), []string{`messages.2.role is "system", want "user"`}},
		"two systems":          {messages(`{"role":"system","content":"s"}`, `{"role":"system","content":"s"}`), []string{`messages.1.role is "system", want "user"`}},
		"no assistant":         {messages(user), []string{`the last message has the role "user", want "assistant"`}},
		"user last":            {messages(user, answer, user), []string{`the last message has the role "user"`}},
		"system alone":         {messages(`{"role":"system","content":"s"}`), []string{`the last message has the role "system"`}},
		"blank question":       {messages(`{"role":"user","content":" \n"}`, answer), []string{"messages.0.content is blank"}},
		"blank turn to learn":  {messages(user, `{"role":"assistant","content":" "}`), []string{"messages.1.content is blank"}},
		"nothing to learn":     {messages(user, `{"role":"assistant","content":"a","weight":0}`), []string{"every assistant message has weight 0", "nothing to learn"}},
		"broken UTF-8":         {messages(`{"role":"user","content":"q`+"\xff"+`"}`, answer), []string{"line 1: holds bytes that are not UTF-8"}},
		"several bad lines":    {`{}` + "\n" + askedAndAnswered + "\n{}\n{}", []string{"line 1: no messages", "(2 more are bad: 3, 4)"}},
	} {
		path := write(t, "d.jsonl", c.content)
		_, err := LoadDemonstrations([]string{path})
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		for _, want := range append(c.want, "demonstration file "+path) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in: %v", name, want, err)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one line: %v", name, err)
		}
	}
	if _, err := LoadDemonstrations(nil); err == nil {
		t.Error("no file: accepted")
	}
	if _, err := LoadDemonstrations([]string{"missing.jsonl"}); err == nil || !strings.Contains(err.Error(), "missing.jsonl") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestDemonstrationHashIsOfTheContent(t *testing.T) {
	load := func(content string) string {
		t.Helper()
		set, err := LoadDemonstrations([]string{write(t, "d.jsonl", content)})
		if err != nil {
			t.Fatal(err)
		}
		return set.Hash
	}
	base := load(askedAndAnswered)
	if same := load("\n" + strings.Replace(askedAndAnswered, `"content":"a"`, `"weight":1,"content":"a"`, 1)); same != base {
		t.Error("the place in the file or a default written out changes the hash")
	}
	for _, change := range [][2]string{{`"q"`, `"p"`}, {`"content":"a"`, `"content":"a","prefix":"b"`}, {`{"role":"user"`, `{"role":"system","content":""},{"role":"user"`}} {
		if load(strings.Replace(askedAndAnswered, change[0], change[1], 1)) == base {
			t.Errorf("the same hash with %s", change[1])
		}
	}
	if load(askedAndAnswered+"\n"+askedAndAnswered) == base {
		t.Error("the same hash for two")
	}
}

func FuzzDemonstrations(f *testing.F) {
	for _, seed := range []string{askedAndAnswered, `{"messages":` + wholeMessages + `}`, `{"messages":[[]]}`, `{"messages":[{"role":null}]}`, "null"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = readLines(bytes.NewReader(data), func(_ int, rec record, bad error) {
			if bad != nil {
				return
			}
			messages, err := readMessages(rec)
			if err != nil {
				return
			}
			trained := false
			for _, m := range messages {
				trained = trained || m.Trained
			}
			if last := messages[len(messages)-1]; !trained || last.Role != RoleAssistant {
				t.Errorf("accepted %+v", messages)
			}
		})
	})
}

func TestOrdersOfStreamsAreIndependent(t *testing.T) {
	draw := func(stream string, seed uint64, shuffle bool) []int {
		order, err := NewOrder(stream, 50, seed, shuffle)
		if err != nil {
			t.Fatal(err)
		}
		return order.Next(50)
	}
	a, b := draw("a", 1, true), draw("b", 1, true)
	if reflect.DeepEqual(a, b) || reflect.DeepEqual(a, draw("a", 2, true)) {
		t.Error("another stream or seed gives the same order")
	}
	if !reflect.DeepEqual(a, draw("a", 1, true)) {
		t.Error("the same stream and seed give another order")
	}
	if plain := draw("a", 1, false); plain[0] != 0 || plain[49] != 49 {
		t.Errorf("without shuffle the order is %v", plain)
	}
	if _, err := NewOrder("a", 0, 1, true); err == nil {
		t.Error("an order of nothing")
	}
}
