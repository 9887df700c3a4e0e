package dataset

import (
	"reflect"
	"strings"
	"testing"
)

func TestAliasesOfEntities(t *testing.T) {
	questions := write(t, "dev.json", `[{"_id": "1", "question": "q?", "answer": "US", "answer_id": "Q30", "evidences": []},
{"_id": "2", "question": "r?", "answer": "yes", "answer_id": null, "evidences": []}, {"_id": "3", "question": "s?", "answer": "x", "answer_id": "Q99"}]`)
	aliases := write(t, "id_aliases.json", `{"Q_id": "Q30", "aliases": ["USA", "US", "", "USA"], "demonyms": ["American"]}
{"Q_id": "Q31", "aliases": [], "demonyms": []}
`)
	set, err := LoadSources([]Source{{Files: []string{questions}, Aliases: aliases}})
	if err != nil {
		t.Fatal(err)
	}
	want := []Question{
		{ID: "1", Text: "q?", Objectives: one("US", "USA", "American")}, {ID: "2", Text: "r?", Objectives: one("yes")}, {ID: "3", Text: "s?", Objectives: one("x")},
	}
	if !reflect.DeepEqual(set.Questions, want) {
		t.Errorf("got %+v", set.Questions)
	}
	for name, c := range map[string]struct{ aliases, want string }{
		"no id":       {`{"aliases": []}`, "line 1: Q_id is null, want the id of an entity"},
		"no list":     {`{"Q_id": "Q1", "aliases": "a"}`, `line 1: aliases is the string "a", want a list of strings`},
		"numbers":     {`{"Q_id": "Q1", "demonyms": [1]}`, "line 1: demonyms.0 is the number 1, want a string"},
		"broken":      {`{"Q_id"`, "line 1: broken JSON"},
		"no object":   {`[]`, "holds no alias"},
		"a bare list": {`["Q1"]`, "is a JSON string, want an object such as"},
	} {
		path := write(t, "a.jsonl", c.aliases)
		_, err := LoadSources([]Source{{Files: []string{questions}, Aliases: path}})
		if err == nil || !strings.Contains(err.Error(), "alias file "+path) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}
