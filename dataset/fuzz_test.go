package dataset

import (
	"bufio"
	"bytes"
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
		q, err := s.question(rec)
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
		"\xef\xbb\xbf{\"question\":\"\\ud800\"}", "null", "[", "[1,", `{"golden_answers":[[[]]]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = readLines(bytes.NewReader(data), checkEmitted(t))
		_ = readArray(bufio.NewReader(bytes.NewReader(data)), checkEmitted(t))
	})
}
