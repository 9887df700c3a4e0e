package dataset

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// write puts a file into a folder of the test's own.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func one(answers ...string) [][]string { return [][]string{answers} }

func TestLoadShapes(t *testing.T) {
	const verl = `{"data_source":"nq","prompt":[{"role":"system","content":"s"},{"role":"user","content":"Answer. Question: q?"}],` +
		`"reward_model":{"style":"rule","ground_truth":{"target":["a","b"]}},"extra_info":{"index":3}}`
	cases := map[string]struct {
		content string
		fields  map[string]string
		want    []Question
	}{
		"plain": {
			content: `{"id":"x","question":"q?","golden_answers":["a","b"]}` + "\n",
			want:    []Question{{ID: "x", Text: "q?", Objectives: one("a", "b")}},
		},
		"one string is one answer": {
			content: `{"id":"x","question":"q?","golden_answers":"cat"}`,
			want:    []Question{{ID: "x", Text: "q?", Objectives: one("cat")}},
		},
		"several objectives": {
			content: `{"id":"x","question":"q?","golden_answers":[["a","b"],["c"]]}`,
			want:    []Question{{ID: "x", Text: "q?", Objectives: [][]string{{"a", "b"}, {"c"}}}},
		},
		"one objective as a list of lists": {
			content: `{"id":"x","question":"q?","golden_answers":[["a","b"]]}`,
			want:    []Question{{ID: "x", Text: "q?", Objectives: one("a", "b")}},
		},
		"blanks are dropped, texts kept as they are": {
			content: `{"id":"x","question":" q <b>&</b> 東京? ","golden_answers":[""," a ","  "]}`,
			want:    []Question{{ID: "x", Text: " q <b>&</b> 東京? ", Objectives: one(" a ")}},
		},
		"numeric and missing ids": {
			content: `{"id":12345678901234567890,"question":"q","golden_answers":"a"}` + "\n" + `{"question":"r","golden_answers":"a"}`,
			want: []Question{
				{ID: "12345678901234567890", Text: "q", Objectives: one("a")},
				{ID: "2", Text: "r", Objectives: one("a")},
			},
		},
		"byte order mark, CRLF, blank lines, no last newline": {
			content: "\xef\xbb\xbf{\"question\":\"q\",\"golden_answers\":\"a\"}\r\n\r\n  \r\n{\"question\":\"r\",\"golden_answers\":\"b\"}",
			want:    []Question{{ID: "1", Text: "q", Objectives: one("a")}, {ID: "2", Text: "r", Objectives: one("b")}},
		},
		"verl with the question in the prompt": {
			content: verl,
			want:    []Question{{ID: "1", Text: "Answer. Question: q?", Objectives: one("a", "b"), Source: "nq"}},
		},
		"verl with a question column": {
			content: `{"question":"q?",` + verl[1:],
			want:    []Question{{ID: "1", Text: "q?", Objectives: one("a", "b"), Source: "nq"}},
		},
		"verl with extra_info.question": {
			content: `{"question":"long q?",` + strings.Replace(verl[1:], `"index":3`, `"question":"inner q?"`, 1),
			want:    []Question{{ID: "1", Text: "inner q?", Objectives: one("a", "b"), Source: "nq"}},
		},
		"verl with a bare ground truth": {
			content: `{"question":"6*12?","data_source":"gsm8k","reward_model":{"ground_truth":"72"}}`,
			want:    []Question{{ID: "1", Text: "6*12?", Objectives: one("72"), Source: "gsm8k"}},
		},
		"target goes before golden_answers, golden_answers before a target that is null": {
			content: `{"question":"q","golden_answers":["g"],"reward_model":{"ground_truth":{"target":["t"]}}}` + "\n" +
				`{"question":"q","golden_answers":["g"],"reward_model":{"ground_truth":{"target":null}}}`,
			want: []Question{{ID: "1", Text: "q", Objectives: one("t")}, {ID: "2", Text: "q", Objectives: one("g")}},
		},
		"HotpotQA original, an array": {
			content: "\n[{\"_id\":\"5a7\",\"question\":\"q?\",\"answer\":\"yes\",\"context\":[[\"T\",[\"s\"]]],\"type\":\"bridge\"},\n {\"_id\":\"5a8\",\"question\":\"r?\",\"answer\":\"no\"}]\n",
			want:    []Question{{ID: "5a7", Text: "q?", Objectives: one("yes")}, {ID: "5a8", Text: "r?", Objectives: one("no")}},
		},
		"MuSiQue original": {
			content: `{"id":"2hop__1_2","paragraphs":[{"idx":0}],"question":"q?","answer":"NYC","answer_aliases":["New York",""],"answerable":true}`,
			want:    []Question{{ID: "2hop__1_2", Text: "q?", Objectives: one("NYC", "New York"), Hops: 2}},
		},
		"hops of a column, of an id, of a mapped column": {
			content: `{"id":"3hop1__1","question":"q","golden_answers":"a","hops":4}` + "\n" + `{"id":"3hop1__2","question":"q","golden_answers":"a","hops":null}` + "\n" +
				`{"id":"hop__3","question":"q","golden_answers":"a","hops":2.0}` + "\n" + `{"id":"0hop__4","question":"q","golden_answers":"a"}`,
			want: []Question{
				{ID: "3hop1__1", Text: "q", Objectives: one("a"), Hops: 4},
				{ID: "3hop1__2", Text: "q", Objectives: one("a"), Hops: 3},
				{ID: "hop__3", Text: "q", Objectives: one("a"), Hops: 2},
				{ID: "0hop__4", Text: "q", Objectives: one("a")},
			},
		},
		"mapped hops": {
			content: `{"id":"2hop__1","question":"q","golden_answers":"a","meta":{"n":5}}`,
			fields:  map[string]string{"hops": "meta.n"},
			want:    []Question{{ID: "2hop__1", Text: "q", Objectives: one("a"), Hops: 5}},
		},
		"mapped columns": {
			content: `{"qid":7,"query":"q?","answers":["a","b"],"meta":{"set":"dev"},"question":"not this"}`,
			fields:  map[string]string{"id": "qid", "question": "query", "golden_answers": "answers.1", "source": "meta.set"},
			want:    []Question{{ID: "7", Text: "q?", Objectives: one("b"), Source: "dev"}},
		},
		"a mapped column of messages": {
			content: `{"messages":[{"role":"user","content":"q?"},{"role":"assistant","content":"a"}],"golden_answers":"g"}`,
			fields:  map[string]string{"question": "messages"},
			want:    []Question{{ID: "1", Text: "q?", Objectives: one("g")}},
		},
		"a column whose name has dots": {
			content: `{"a.b":"q?","a":{"b":"not this"},"golden_answers":"g"}`,
			fields:  map[string]string{"question": "a.b"},
			want:    []Question{{ID: "1", Text: "q?", Objectives: one("g")}},
		},
		"a bare pair with the answer mapped": {
			content: `{"question":"q?","answer":"a"}`,
			fields:  map[string]string{"golden_answers": "answer"},
			want:    []Question{{ID: "1", Text: "q?", Objectives: one("a")}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			set, err := Load([]string{write(t, "q.jsonl", c.content)}, Options{Fields: c.fields})
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(set.Questions, c.want) {
				t.Errorf("got  %+v\nwant %+v", set.Questions, c.want)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	const good = `{"id":"x","question":"q?","golden_answers":["a"]}` + "\n"
	cases := map[string]struct {
		content string
		fields  map[string]string
		want    []string // in the message
	}{
		"empty file":             {"", nil, []string{"holds no question", `"golden_answers"`}},
		"blank file":             {"\n \n", nil, []string{"holds no question"}},
		"empty array":            {"[]", nil, []string{"holds no question"}},
		"broken line":            {good + "\n" + `{"id":"y","question":`, nil, []string{"line 3: broken JSON", `{\"id\":\"y\"`}},
		"line that is a list":    {good + `["a"]`, nil, []string{"line 2: is a JSON array, want an object"}},
		"line that is null":      {good + `null`, nil, []string{"line 2: is null, want an object"}},
		"two values on a line":   {good + `{} {}`, nil, []string{"line 2: broken JSON"}},
		"no golden column":       {`{"question":"q","answer":"a"}`, nil, []string{"line 1: missing column", "golden_answers", "reward_model.ground_truth.target", "columns found: answer, question", `{"id": "q1"`}},
		"no question column":     {`{"id":1,"golden_answers":"a"}`, nil, []string{"line 1: missing column question; columns found: golden_answers, id"}},
		"no columns at all":      {`{}`, nil, []string{"columns found: none"}},
		"empty golden list":      {good + `{"question":"q","golden_answers":[]}`, nil, []string{"line 2: golden_answers is empty: no golden answer"}},
		"empty golden objective": {`{"question":"q","golden_answers":[["a"],[]]}`, nil, []string{"golden_answers.1", "no golden answer"}},
		"blank golden answers":   {`{"question":"q","golden_answers":[" ",""]}`, nil, []string{"holds only blanks: no golden answer"}},
		"golden answers null":    {`{"question":"q","golden_answers":null}`, nil, []string{"line 1: golden_answers is null: no golden answer"}},
		"empty target":           {`{"question":"q","reward_model":{"ground_truth":{"target":[]}}}`, nil, []string{"reward_model.ground_truth.target is empty: no golden answer"}},
		"ground truth an object": {`{"question":"q","reward_model":{"ground_truth":{"aim":[]}}}`, nil, []string{"reward_model.ground_truth is an object"}},
		"number as golden":       {`{"question":"q","golden_answers":12}`, nil, []string{"line 1: golden_answers is the number 12, want a string"}},
		"number among golden":    {`{"question":"q","golden_answers":["a",12]}`, nil, []string{"golden_answers.1 is the number 12, want a string"}},
		"mixed objectives":       {`{"question":"q","golden_answers":[["a"],"b"]}`, nil, []string{"golden_answers.1 is the string \"b\", want a list"}},
		"objectives too deep":    {`{"question":"q","golden_answers":[[["a"]]]}`, nil, []string{"golden_answers.0 is a list of 1, want a string"}},
		"question a number":      {`{"question":4,"golden_answers":"a"}`, nil, []string{"question is the number 4, want a string"}},
		"blank question":         {`{"question":" ","golden_answers":"a"}`, nil, []string{"question is blank"}},
		"id an object":           {`{"id":{},"question":"q","golden_answers":"a"}`, nil, []string{"id is an object, want a string or a number"}},
		"hops not whole":         {`{"question":"q","golden_answers":"a","hops":1.5}`, nil, []string{"line 1: hops is the number 1.5, want a whole number from 1 to 1000"}},
		"hops 0":                 {good + `{"question":"q","golden_answers":"a","hops":0}`, nil, []string{"line 2: hops is the number 0, want a whole number"}},
		"hops a string":          {`{"question":"q","golden_answers":"a","hops":"2"}`, nil, []string{`hops is the string "2", want a whole number`}},
		"hops beyond all":        {`{"question":"q","golden_answers":"a","hops":1e300}`, nil, []string{"hops is the number 1e300"}},
		"mapped hops missing":    {good, map[string]string{"hops": "n"}, []string{"missing column n (from data.fields.hops)"}},
		"prompt an object":       {`{"prompt":{},"golden_answers":"a"}`, nil, []string{`prompt is an object, want a string or a list`}},
		"prompt without a user":  {`{"prompt":[{"role":"system","content":"s"}],"golden_answers":"a"}`, nil, []string{`no message with the role "user"`}},
		"user message not text":  {`{"prompt":[{"role":"user","content":[1]}],"golden_answers":"a"}`, nil, []string{"prompt.0.content is a list of 1"}},
		"aliases not a list":     {`{"id":"1","question":"q","answer":"a","answer_aliases":"b"}`, nil, []string{"answer_aliases is the string"}},
		"duplicate ids":          {good + "\n" + good, nil, []string{`line 3: id "x" is already that of`, "line 1"}},
		"id like a row number":   {`{"id":"2","question":"q","golden_answers":"a"}` + "\n" + `{"question":"q","golden_answers":"a"}`, nil, []string{`id "2" is already that of`}},
		"mapped column missing":  {good, map[string]string{"question": "query"}, []string{"missing column query (from data.fields.question)", "columns found: golden_answers, id, question"}},
		"mapped id missing":      {good, map[string]string{"id": "qid"}, []string{"missing column qid (from data.fields.id)"}},
		"mapped element missing": {good, map[string]string{"golden_answers": "golden_answers.1"}, []string{"missing column golden_answers.1"}},
		"unknown field":          {good, map[string]string{"query": "question"}, []string{`unknown field "query"`, "allowed: id, question, golden_answers, source, hops"}},
		"empty mapping":          {good, map[string]string{"id": ""}, []string{"data.fields.id"}},
		"broken array element":   {`[{"question":"q","golden_answers":"a"}, {"question"]`, nil, []string{"element 2: broken JSON"}},
		"array not closed":       {`[{"question":"q","golden_answers":"a"}`, nil, []string{"element 1", "not closed"}},
		"array and more":         {`[{"question":"q","golden_answers":"a"}] {}`, nil, []string{"something follows the array"}},
		"array of strings":       {`["q"]`, nil, []string{"element 1: is a JSON string"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := write(t, "q.jsonl", c.content)
			set, err := Load([]string{path}, Options{Fields: c.fields})
			if err == nil {
				t.Fatalf("loaded %+v", set.Questions)
			}
			if len(c.fields) == 0 {
				c.want = append(c.want, path)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
}

func TestLoadListsTheOtherBadRows(t *testing.T) {
	var content strings.Builder
	for k := 1; k <= 30; k++ {
		golden := `"a"`
		if k%2 == 0 {
			golden = "[]"
		}
		fmt.Fprintf(&content, `{"question":"q","golden_answers":%s}`+"\n", golden)
	}
	_, err := Load([]string{write(t, "q.jsonl", content.String())}, Options{})
	want := "line 2: golden_answers is empty: no golden answer (14 more are bad: 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, …)"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestLoadSeveralFiles(t *testing.T) {
	a := write(t, "a.jsonl", `{"question":"q","golden_answers":"a"}`)
	b := write(t, "b.json", `[{"question":"r","golden_answers":"a"}]`)
	set, err := Load([]string{a, b}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Question{{ID: "1", Text: "q", Objectives: one("a")}, {ID: "2", Text: "r", Objectives: one("a")}}
	if !reflect.DeepEqual(set.Questions, want) {
		t.Errorf("got %+v", set.Questions)
	}
	c := write(t, "c.jsonl", "\n"+`{"id":"1","question":"q","golden_answers":"a"}`)
	_, err = Load([]string{a, c}, Options{})
	if err == nil || !strings.Contains(err.Error(), c+": line 2") || !strings.Contains(err.Error(), a+": line 1") {
		t.Errorf("the two places of the same id are not in: %v", err)
	}
	if _, err = Load([]string{a, filepath.Join(t.TempDir(), "none.jsonl")}, Options{}); err == nil || !strings.Contains(err.Error(), "none.jsonl") {
		t.Errorf("a missing file: %v", err)
	}
	if _, err = Load([]string{t.TempDir()}, Options{}); err == nil {
		t.Error("a folder was loaded")
	}
	if _, err = Load(nil, Options{}); err == nil {
		t.Error("no file was loaded")
	}
}

func TestSameIDUnderTwoSources(t *testing.T) {
	path := write(t, "q.jsonl", `{"id":"train_0","data_source":"nq","question":"q","golden_answers":"a"}
{"id":"train_0","data_source":"hotpotqa","question":"r","golden_answers":"a"}
{"id":"train_1","data_source":"nq","question":"s","golden_answers":"a"}`)
	set, err := Load([]string{path}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, q := range set.Questions {
		ids = append(ids, q.ID)
	}
	if got := strings.Join(ids, " "); got != "nq/train_0 hotpotqa/train_0 nq/train_1" {
		t.Error(got)
	}
}

func TestHashIsOfTheQuestions(t *testing.T) {
	load := func(content string) string {
		t.Helper()
		set, err := Load([]string{write(t, "q.jsonl", content)}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return set.Hash
	}
	base := load(`{"id":"x","question":"q","golden_answers":["a","b"]}`)
	if len(base) != 64 {
		t.Errorf("hash %q", base)
	}
	if other := load(`[ {"golden_answers":["a","b"], "question":"q","id":"x","more":1} ]`); other != base {
		t.Error("another way to write the same questions has another hash")
	}
	if load(`{"id":"x","question":"q","golden_answers":["a","b"],"hops":2}`) != base {
		t.Error("the number of hops changes the hash: it would keep runs from going on")
	}
	for _, content := range []string{
		`{"id":"y","question":"q","golden_answers":["a","b"]}`,
		`{"id":"x","question":"q ","golden_answers":["a","b"]}`,
		`{"id":"x","question":"q","golden_answers":["b","a"]}`,
		`{"id":"x","question":"q","golden_answers":[["a"],["b"]]}`,
		`{"id":"x","question":"q","golden_answers":["a","b"],"data_source":"s"}`,
	} {
		if load(content) == base {
			t.Errorf("same hash for %s", content)
		}
	}
}

func TestLongLine(t *testing.T) {
	long := strings.Repeat("x", 3<<20)
	set, err := Load([]string{write(t, "q.jsonl", `{"question":"`+long+`","golden_answers":"a"}`)}, Options{})
	if err != nil || set.Questions[0].Text != long {
		t.Errorf("a line of 3 MiB: %v", err)
	}
	err = readLines(&spaces{maxLine + 10}, func(int, record, error) {})
	if err == nil || !strings.Contains(err.Error(), "line 1: longer than 64 MiB") {
		t.Errorf("a line over the bound: %v", err)
	}
}

// spaces is a reader of n spaces.
type spaces struct{ n int }

func (s *spaces) Read(p []byte) (int, error) {
	if s.n == 0 {
		return 0, fmt.Errorf("read past the bound")
	}
	n := min(len(p), s.n)
	for k := range p[:n] {
		p[k] = ' '
	}
	s.n -= n
	return n, nil
}
