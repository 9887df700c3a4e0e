package dataset

import (
	"bufio"
	"bytes"
	"os"
	"strings"
	"testing"
)

// checkEmitted holds every record that a reader hands out against what Load promises.
func checkEmitted(t *testing.T) emit {
	s := shape{}
	last := 0
	return func(row int, rec record, bad error) {
		if row <= last {
			t.Errorf("row %d after row %d", row, last)
		}
		last = row
		if bad != nil {
			return
		}
		q, _, err := s.question(rec)
		if err != nil {
			return
		}
		if strings.TrimSpace(q.Text) == "" || len(q.Objectives) == 0 {
			t.Errorf("row %d: %+v", row, q)
		}
		for _, answers := range q.Objectives {
			if len(answers) == 0 {
				t.Errorf("row %d: an objective without an answer: %+v", row, q)
			}
		}
	}
}

func FuzzQuestionFile(f *testing.F) {
	for _, seed := range []string{
		"",
		`{"id":"x","question":"q?","golden_answers":["a"]}` + "\n\r\n" + `{"id":1,"question":"q?","golden_answers":[["a"],["b",""]]}`,
		`[{"_id":"x","question":"q?","answer":"a"}]`,
		`{"prompt":[{"role":"user","content":"q"}],"reward_model":{"ground_truth":{"target":"a"}}}`,
		`{"id":"x","question":"q","answer":["a"],"answer_aliases":["b"]}`,
		`{"Data": [{"Question": "q", "QuestionId": "x", "Answer": {"Value": "a", "Aliases": ["b"]}}], "Version": 1}`, `{"Data":[{}],"x":[{"y":{}}`,
		`{"question":"q","possible_answers":"[\"a\"]","answer":{"value":["a"],"aliases":3}}`, `{"question":"q","answer":["a","b"]}`,
		"\xef\xbb\xbf{\"question\":\"\\ud800\"}", "null", "[", "[1,", `{"golden_answers":[[[]]]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = readLines(bytes.NewReader(data), checkEmitted(t))
		_ = readArray(bufio.NewReader(bytes.NewReader(data)), checkEmitted(t))
		_ = readData(bufio.NewReader(bytes.NewReader(data)), checkEmitted(t))
	})
}

func FuzzTable(f *testing.F) {
	for _, seed := range []string{
		"", "Question,Answer\r\nq?,a\n", "question,golden_answers\n\"q\n\"\"x\"\"\",\"[\"\"a\"\", \"\"b\"\"]\"\n",
		"id\tquestion\tpossible_answers\n1\tq\t\"[\"\"a\"\"]\"\n", "a,a\n", "a,b\n1\n1,2\n1,2,3\n", "a,\"b\n", "\xef\xbb\xbfid,hops\n1,2\n\"",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = readTable(bytes.NewReader(data), ',', checkEmitted(t))
		_ = readTable(bytes.NewReader(data), '\t', checkEmitted(t))
	})
}

func FuzzParquet(f *testing.F) {
	for _, name := range []string{"search_r1_pandas", "objectives_pandas", "question_answer_pandas"} {
		data, err := os.ReadFile("testdata/" + name + ".parquet")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)/2])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = readParquet(bytes.NewReader(data), int64(len(data)), shape{}.columns(), checkEmitted(t))
	})
}
