package retrieval

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseRetrieve(t *testing.T) {
	cases := map[string]struct {
		body string
		want [][]Passage
	}{
		"with scores": {twoPassages, [][]Passage{{{"17", "\"Lima\"\nLima is the capital."}, {"4", "c"}}}},
		"bare":        {`{"result":[[{"id":"17","contents":"c"}],[{"id":"90","contents":"d"}]]}`, [][]Passage{{{"17", "c"}}, {{"90", "d"}}}},
		"nothing":     {`{"result":[[]]}`, [][]Passage{{}}},
		"title and text, no id, more members": {
			`{"result":[[{"document":{"title":"Lima","text":"t","x":[1]},"score":null},{"title":"\"Peru\"","text":"t","contents":"\"Peru\"\nt"}]],"time":3}`,
			[][]Passage{{{"", "\"Lima\"\nt"}, {"", "\"Peru\"\nt"}}},
		},
		"ids as they are": {
			`{"result":[[{"id":12345678901234567890,"contents":""},{"id":"","contents":"c"},{"id":null,"contents":"c"}]]}`,
			[][]Passage{{{"12345678901234567890", ""}, {"", "c"}, {"", "c"}}},
		},
		"escaped text": {`{"result":[[{"id":"\u6771","contents":"\u6771\u4eac \u003cb\u003e"}]]}`, [][]Passage{{{"東", "東京 <b>"}}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseRetrieve([]byte(c.body), len(c.want))
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestParseRetrieveRefuses(t *testing.T) {
	cases := map[string]struct{ body, want string }{
		"empty":               {"", "broken JSON: unexpected end"},
		"cut":                 {`{"result":[[`, "broken JSON: unexpected end of JSON input, in \"{"},
		"page of a proxy":     {"<html>Bad gateway</html>", "in \"<html>Bad gateway"},
		"two values":          {`{"result":[[]]} {}`, "broken JSON"},
		"a list":              {`[[]]`, "is a JSON array, want an object"},
		"null":                {`null`, `members none, want "result"`},
		"no result":           {`{"detail":"x","error":1}`, `members "detail", "error", want "result"`},
		"result null":         {`{"result":null}`, "result is null, want a list"},
		"result an object":    {`{"result":{"a":1}}`, "result is an object, want a list"},
		"result text":         {`{"result":"x"}`, "result is a string, want a list"},
		"too few lists":       {`{"result":[]}`, "a list of 0, want 1"},
		"too many lists":      {`{"result":[[],[]]}`, "a list of 2, want 1"},
		"flat":                {`{"result":[{"id":"1","contents":"c"}]}`, "result[0] is an object, want a list of documents"},
		"list null":           {`{"result":[null]}`, "result[0] is null"},
		"document text":       {`{"result":[["c"]]}`, "result[0][0]: is a string, want a document"},
		"document null":       {`{"result":[[null]]}`, "result[0][0]: is null, want a document"},
		"wrapped text":        {`{"result":[[{"document":"c"}]]}`, "result[0][0]: document is a string, want an object"},
		"wrapped null":        {`{"result":[[{"document":null,"contents":"c"}]]}`, "document is null, want an object"},
		"no contents":         {`{"result":[[{"id":1,"contents":"c"},{"document":{"id":"1","body":"c"}}]]}`, `result[0][1]: members "body", "id", want "contents", or "title" and "text"`},
		"contents a list":     {`{"result":[[{"id":"1","contents":["c"]}]]}`, "contents is a JSON array, want a string"},
		"text a number":       {`{"result":[[{"id":"1","title":"t","text":3}]]}`, "text is a JSON number, want a string"},
		"id an object":        {`{"result":[[{"id":{},"contents":"c"}]]}`, "id is an object, want a string or a number"},
		"nested beyond sense": {`{"result":` + strings.Repeat("[", 20000), "broken JSON"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseRetrieve([]byte(c.body), 1)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %+v, %v, want %q", got, err, c.want)
			}
		})
	}
}

func FuzzReply(f *testing.F) {
	for _, seed := range []string{
		twoPassages, `{"result":[[]]}`, `{"result":[{"page":"x"}]}`, `{"result":[[{"id":1.5e3,"title":"\"","text":"\ud800"}]]}`,
		"", "null", "[]", `{"result":[[{"document":{"document":{}}}]]}`, `{"RESULT":[[{"Id":"x","CONTENTS":"y"}]]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		results, err := parseRetrieve(body, 1)
		if err == nil && len(results) != 1 {
			t.Errorf("%d lists", len(results))
		}
		if err != nil && (results != nil || strings.TrimSpace(err.Error()) == "") {
			t.Errorf("%v and %v", results, err)
		}
		pages, err := parseAccess(body, 1)
		if (err == nil) != (len(pages) == 1) {
			t.Errorf("%d pages, %v", len(pages), err)
		}
		_, _ = ParsePassage(body)
	})
}
