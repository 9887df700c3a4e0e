package jsonl

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"
)

type record struct {
	Text   string    `json:"text"`
	Counts []int     `json:"counts"`
	Scores []float64 `json:"scores"`
	Flag   *bool     `json:"flag"`
	Inner  struct {
		Key string `json:"key"`
	} `json:"inner"`
}

func TestDecodeNamesWhatIsWrong(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{`{"text":"a","counts":[1,2],"flag":true}`, ""},
		{`{"text":3}`, "text: found number, want a string"},
		{`{"counts":[1.5]}`, "counts: found number 1.5, want a whole number"},
		{`{"scores":["x"]}`, "scores: found string, want a number"},
		{`{"scores":5}`, "scores: found number, want a list"},
		{`{"flag":"yes"}`, "flag: found string, want true or false"},
		{`{"inner":"yes"}`, "inner: found string, want an object"},
		{`{"inner":{"kee":1}}`, `unknown field "kee"`},
		{`[1]`, "found array, want an object"},
		{`{"txt":"a"}`, `unknown field "txt"`},
		{`{"text":"a"`, "not valid JSON: unexpected EOF"},
		{`text`, "not valid JSON: invalid character 'e' in literal true (expecting 'r')"},
		{`{} {}`, "more than one JSON value on the line"},
		{`{}]`, "more than one JSON value on the line"},
	} {
		var got string
		if err := Decode([]byte(test.line), &record{}); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.line, got, test.want)
		}
	}
}

func echo(line []byte) (any, error) {
	var r record
	if err := Decode(line, &r); err != nil {
		return nil, err
	}
	return r.Text, nil
}

func TestTransform(t *testing.T) {
	for _, test := range []struct{ in, out, err string }{
		{"", "", ""},
		{"{\"text\":\"<mem>&東\"}", "\"<mem>&東\"\n", ""},
		{"\n{\"text\":\"a\"}\r\n\n{\"text\":\"b\"}\n", "\"a\"\n\"b\"\n", ""},
		{"{\"text\":\"a\"}\n\n{\"txt\":1}\n{\"text\":\"c\"}", "\"a\"\n", `line 3: unknown field "txt"`},
	} {
		var out strings.Builder
		err := Transform(strings.NewReader(test.in), &out, echo)
		if got := message(err); got != test.err || out.String() != test.out {
			t.Errorf("%q: wrote %q, error %q", test.in, out.String(), got)
		}
	}
}

func TestTransformReportsWhatItCannotWrite(t *testing.T) {
	nan := func([]byte) (any, error) { return math.NaN(), nil }
	if err := Transform(strings.NewReader("{}"), io.Discard, nan); !strings.Contains(message(err), "line 1: json: unsupported value: NaN") {
		t.Error(err)
	}
	broken := errors.New("no space")
	if err := Transform(strings.NewReader("{}"), failing{broken}, echo); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := Transform(iotest.ErrReader(broken), io.Discard, echo); !errors.Is(err, broken) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Each answer must arrive before the next question is asked.
func TestTransformAnswersLineByLine(t *testing.T) {
	in, ask := io.Pipe()
	answers, out := io.Pipe()
	go func() { _ = out.CloseWithError(Transform(in, out, echo)) }()
	for range 3 {
		if _, err := io.WriteString(ask, "{\"text\":\"a\"}\n"); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 4)
		if _, err := io.ReadFull(answers, buffer); err != nil || string(buffer) != "\"a\"\n" {
			t.Fatalf("%q, %v", buffer, err)
		}
	}
	_ = ask.Close()
	if _, err := io.ReadAll(answers); err != nil {
		t.Error(err)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
