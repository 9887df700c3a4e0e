package dataset

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The published shapes, with rows made up for the test.
func TestPublishedShapes(t *testing.T) {
	cases := map[string]struct {
		file, content string
		want          []Question
		shape         string
	}{
		"HotpotQA": {
			"hotpot_dev_fullwiki.json",
			`[{"_id": "5a", "answer": "yes", "question": "q?", "supporting_facts": [["T", 0]], "context": [["T", ["s."]]], "type": "comparison", "level": "hard"}]`,
			[]Question{{ID: "5a", Text: "q?", Objectives: one("yes")}},
			shapeHotpot,
		},
		"HotpotQA with another name of the id": {
			"h.jsonl", `{"id": "5a", "question": "q?", "answer": "yes", "type": "bridge", "level": "easy", "supporting_facts": {"title": ["T"], "sent_id": [0]}}`,
			[]Question{{ID: "5a", Text: "q?", Objectives: one("yes")}},
			shapeHotpot,
		},
		"2WikiMultihopQA": {
			"dev.json",
			`[{"_id": "8813", "type": "compositional", "question": "q?", "context": [], "entity_ids": "Q1_Q2", "supporting_facts": [["T", 0]], "evidences": [["T", "child", "U"]], "answer": "U", "evidences_id": [], "answer_id": "Q2"}]`,
			[]Question{{ID: "8813", Text: "q?", Objectives: one("U")}},
			shapeTwoWiki,
		},
		"MuSiQue": {
			"musique_ans_v1.0_dev.jsonl",
			`{"id": "3hop1__1_2_3", "paragraphs": [], "question": "q?", "question_decomposition": [], "answer": "UK", "answer_aliases": ["United Kingdom"], "answerable": true}`,
			[]Question{{ID: "3hop1__1_2_3", Text: "q?", Objectives: one("UK", "United Kingdom"), Hops: 3}},
			shapeMuSiQue,
		},
		"Bamboogle": {
			"bamboogle.csv", "Question,Answer\r\n\"Who, when, \"\"what\"\"?\",Peter Kay\r\nWhen was it?,1901\r\n",
			[]Question{{ID: "1", Text: `Who, when, "what"?`, Objectives: one("Peter Kay")}, {ID: "2", Text: "When was it?", Objectives: one("1901")}},
			shapeBamboogle,
		},
		"Bamboogle as JSONL": {
			"bamboogle.jsonl", `{"Question": "q?", "Answer": "a"}`, []Question{{ID: "1", Text: "q?", Objectives: one("a")}}, shapeBamboogle,
		},
		"PopQA": {
			"popQA.tsv",
			"id\tsubj\tprop\tobj\ts_pop\tquestion\tpossible_answers\n4222\tG. R.\toccupation\tpolitician\t142\tWhat is G. R.'s occupation?\t" +
				`"[""politician"", ""political leader"", ""pol.""]"` + "\n",
			[]Question{{ID: "4222", Text: "What is G. R.'s occupation?", Objectives: one("politician", "political leader", "pol.")}},
			shapePopQA,
		},
		"PopQA as JSONL": {
			"popqa.jsonl", `{"id": 4222, "question": "q?", "possible_answers": "[\"a\", \"b\"]"}`,
			[]Question{{ID: "4222", Text: "q?", Objectives: one("a", "b")}},
			shapePopQA,
		},
		"PopQA as a list": {
			"popqa.jsonl", `{"id": 4222, "question": "q?", "possible_answers": ["a", "b"]}`,
			[]Question{{ID: "4222", Text: "q?", Objectives: one("a", "b")}},
			shapePopQA,
		},
		"TriviaQA": {
			"wikipedia-dev.json", "\ufeff" + `{
    "Data": [
        {"Answer": {"Aliases": ["Park", "The Park", "Park Grün"], "MatchedWikiEntityName": "", "NormalizedAliases": ["park", "park grün"], "NormalizedValue": "park", "Type": "FreeForm", "Value": "Park"},
         "EntityPages": [{"Title": "T"}], "Question": "q?", "QuestionId": "tc_33", "QuestionSource": "http://example.org/"},
        {"Answer": {"Value": "x"}, "Question": "r?", "QuestionId": "tc_40"}
    ],
    "Domain": "Web", "VerifiedEval": false, "More": [{"a": {}}], "Version": 1.0
}`,
			[]Question{{ID: "tc_33", Text: "q?", Objectives: one("Park", "The Park", "Park Grün", "park", "park grün")}, {ID: "tc_40", Text: "r?", Objectives: one("x")}},
			shapeTrivia,
		},
		"TriviaQA in small letters": {
			"t.jsonl", `{"question": "q?", "question_id": "tc_1", "question_source": "s", "answer": {"aliases": ["A"], "normalized_aliases": ["a"], "type": "T", "value": "A", "normalized_value": "a"}}`,
			[]Question{{ID: "tc_1", Text: "q?", Objectives: one("A", "a")}},
			shapeTrivia,
		},
		"NQ-open": {
			"NQ-open.dev.jsonl", `{"question": "q", "answer": ["14 December 1972", "December 1972"]}`,
			[]Question{{ID: "1", Text: "q", Objectives: one("14 December 1972", "December 1972")}},
			shapeNQ,
		},
		"FlashRAG": {
			"test.jsonl", `{"id": "test_0", "question": "q", "golden_answers": ["a"], "metadata": {"answer": ["b"], "type": "bridge"}}`,
			[]Question{{ID: "test_0", Text: "q", Objectives: one("a")}},
			shapePlain,
		},
		"verl": {
			"train.jsonl",
			`{"data_source": "popqa", "prompt": [{"role": "user", "content": "Answer: q?"}], "ability": "fact-reasoning", "reward_model": {"style": "rule", "ground_truth": {"target": ["a", "b"]}}, "extra_info": {"index": 0, "split": "train", "question": "q?"}}`,
			[]Question{{ID: "1", Text: "q?", Objectives: one("a", "b"), Source: "popqa"}},
			shapeVerl,
		},
		"verl with several objectives": {
			"train.jsonl",
			`{"data_source": "hotpotqa", "prompt": [{"role": "user", "content": "Answer the following questions: q?; r?"}], "reward_model": {"ground_truth": {"target": [["a"], ["b; c", "c"]]}}}`,
			[]Question{{ID: "1", Text: "Answer the following questions: q?; r?", Objectives: [][]string{{"a"}, {"c"}}, Source: "hotpotqa"}},
			shapeVerl,
		},
		"a table with lists, an id and hops": {
			"q.tsv", "\ufeffid\tquestion\tgolden_answers\thops\tdata_source\n7\tq?\t\"[\"\"a\"\", \"\"b\"\"]\"\t2\tmade\n8\tr?\ta [b]\t\t\n",
			[]Question{{ID: "7", Text: "q?", Objectives: one("a", "b"), Hops: 2, Source: "made"}, {ID: "8", Text: "r?", Objectives: one("a [b]")}},
			shapePlain,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			set, err := Load([]string{write(t, c.file, c.content)}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(set.Questions, c.want) {
				t.Errorf("got  %+v\nwant %+v", set.Questions, c.want)
			}
			if want := []Count{{c.shape, len(c.want)}}; !reflect.DeepEqual(set.Parts[0].Shapes, want) {
				t.Errorf("recognised as %v, want %v", set.Parts[0].Shapes, want)
			}
		})
	}
}

func TestPublishedShapesRefuse(t *testing.T) {
	for name, c := range map[string]struct{ file, content, want string }{
		"possible answers no list":   {"q.jsonl", `{"question":"q","possible_answers":"a"}`, `line 1: possible_answers is the string "a", want a JSON list such as ["Lima"]`},
		"possible answers null":      {"q.jsonl", `{"question":"q","possible_answers":"null"}`, `line 1: possible_answers is the string "null", want one JSON list`},
		"possible answers and more":  {"q.jsonl", `{"question":"q","possible_answers":"[\"a\"] 3"}`, `want one JSON list`},
		"possible answers numbers":   {"q.jsonl", `{"question":"q","possible_answers":"[1]"}`, `possible_answers.0 is the number 1, want a string`},
		"TriviaQA without an answer": {"q.jsonl", `{"question":"q","answer":{"value":"<unk>","aliases":[]}}`, `answer has no value and no aliases: no golden answer`},
		"TriviaQA with a number":     {"q.jsonl", `{"question":"q","answer":{"value":1901}}`, `answer.0 is the number 1901, want a string`},
		"TriviaQA cut short":         {"q.json", `{"Data": [{"Question": "q", "Answer": {"Value": "a"}}], "Version": 1`, `after element 1: broken JSON, the object is not closed`},
		"TriviaQA and more":          {"q.json", `{"Data": [{"Question": "q", "Answer": {"Value": "a"}}]} {}`, `something follows the object with 1 elements`},
		"TriviaQA, a broken element": {"q.json", `{"Data": [{"Question": "q", "Answer": {"Value": "a"}}, {"Question": ""}]}`, `element of Data 2: Question is blank`},
		"a table without a header":   {"q.csv", "q?,a\nr?,b\n", `line 2: missing column question; columns found: a, q?`},
		"an empty table":             {"q.csv", "", "holds no question"},
		"a table of a header":        {"q.csv", "question,golden_answers\n", "holds no question"},
		"a column twice":             {"q.csv", "question,question\nq,a\n", "the header names a column twice: question, question"},
		"a value too much":           {"q.csv", "question,golden_answers\nq,a\n\nq,a,b\nq,c\n", "line 4: broken table: 3 values, want 2 as in the header"},
		"a header of a terminal":     {"q.csv", "q\x1b[2J\xff,answer\nq,a\n", `columns found: answer, "q\x1b[2J\xff"`},
		"a row too long":             {"q.csv", "question,golden_answers\nq,a\n\"" + strings.Repeat("x", maxLine+1<<20), "behind line 2: a row is longer than 64 MiB"},
		"a table of another code":    {"q.csv", "question,golden_answers\nq,caf\xe9\n", `line 2: the golden answer "caf\xe9" holds bytes that are not UTF-8`},
		"JSON of another code":       {"q.jsonl", `{"question":"q","golden_answers":["caf` + "\xe9" + `"]}`, "line 1: the golden answer \"caf\ufffd\" holds bytes that are not UTF-8"},
		"a quote within":             {"q.csv", "question,golden_answers\nq,a \"b\n", `line 2: broken table: bare " in non-quoted-field, in line 2`},
		"an open quote":              {"q.tsv", "question\tgolden_answers\nq\ta\nq\t\"b\nq\tc\n", `line 3: broken table: extraneous or missing " in quoted-field`},
		"a list of another kind":     {"q.csv", "question,golden_answers\nq,['a' 'b']\n", `line 2: golden_answers is the string "['a' 'b']", want a JSON list`},
		"no golden answer in a cell": {"q.csv", "question,golden_answers\nq,\n", `line 2: golden_answers is null: no golden answer`},
		"hops no number":             {"q.csv", "question,golden_answers,hops\nq,a,two\n", `hops is the string "two", want a whole number`},
		"nothing is left":            {"q.jsonl", `{"id":"2hop__1","question":"q","answer":"a","answerable":false}`, `no question is left of 1 rows: 1 unanswerable (answerable is false)`},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, c.file, c.content)
			_, err := Load([]string{path}, Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// What is no question of the set is counted: MuSiQue repeats the ids of its answerable rows.
func TestRowsLeftOut(t *testing.T) {
	path := write(t, "q.jsonl", `{"id":"2hop__1","question":"q","answer":"a","answer_aliases":[],"answerable":true}
{"id":"2hop__1","question":"q","answer":"a","answer_aliases":[],"answerable":false}
{"id":"x","question":"q; r","golden_answers":[["a"],["b;c"]]}
{"id":"y","question":"q; r","golden_answers":[["a;b","a"],["b"]]}
{"id":"z","question":"q","golden_answers":["a;b"]}`)
	set, err := Load([]string{path}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Question{
		{ID: "2hop__1", Text: "q", Objectives: one("a"), Hops: 2}, {ID: "y", Text: "q; r", Objectives: [][]string{{"a"}, {"b"}}}, {ID: "z", Text: "q", Objectives: one("a;b")},
	}
	if !reflect.DeepEqual(set.Questions, want) {
		t.Errorf("got %+v", set.Questions)
	}
	wantPart := Part{
		Files: []string{path}, Weight: 1, Rows: 5, Questions: 3, Shapes: []Count{{shapeMuSiQue, 1}, {shapePlain, 2}},
		LeftOut: []Count{{"unanswerable (answerable is false)", 1}, {noSeparable, 1}},
	}
	if !reflect.DeepEqual(set.Parts, []Part{wantPart}) {
		t.Errorf("got %+v", set.Parts)
	}
}

func TestExpand(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"b.jsonl", "a.jsonl", "c.json", "d[1].jsonl", "d1.jsonl"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll("x/y", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("x", "y", "z.jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Expand([]string{"*.parquet"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a pattern that matches nothing: %v", err)
	}
	for patterns, want := range map[string]string{
		"?.jsonl":         "a.jsonl b.jsonl",
		"c.json [ab].*":   "c.json a.jsonl b.jsonl",
		"d[1].jsonl":      "d[1].jsonl",
		"x/*/*.jsonl":     "x/y/z.jsonl",
		"none.jsonl":      "none.jsonl", // opening it tells
		"*.parquet":       `error: the pattern "*.parquet" matches no file`,
		"a.jsonl [":       `error: the pattern "[" is broken: syntax error in pattern`,
		"a.jsonl *.jsonl": "a.jsonl a.jsonl b.jsonl d1.jsonl d[1].jsonl",
	} {
		files, err := Expand(strings.Fields(patterns))
		got := strings.Join(files, " ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", patterns, got, want)
		}
	}
}

// An open quote must not take in a file of any size.
func TestALongRowOfATable(t *testing.T) {
	err := readTable(&spaces{maxLine + 10<<20}, ',', func(int, record, error) {})
	if err == nil || !strings.Contains(err.Error(), "a row is longer than 64 MiB") {
		t.Errorf("got %v", err)
	}
}
