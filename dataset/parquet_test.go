package dataset

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// The files of testdata were written by pandas (pyarrow): data frames with nested lists, structs
// and nulls, one of them with several row groups and zstd.

func TestParquetOfPandasSearchR1(t *testing.T) {
	set, err := Load([]string{"testdata/search_r1_pandas.parquet"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Question{
		{ID: "nq/train_0", Text: "when did the north tower open?", Objectives: one("14 December 1972", "December 1972"), Source: "nq"},
		{ID: "nq/train_1", Text: "who painted the «Blaue Reiter» in München?", Objectives: one("Wassily Kandinsky"), Source: "nq"},
		{ID: "hotpotqa/train_0", Text: "are both rivers in 東京?", Objectives: one("no"), Source: "hotpotqa"},
	}
	if !reflect.DeepEqual(set.Questions, want) {
		t.Errorf("got %+v", set.Questions)
	}
	set, err = Load([]string{"testdata/search_r1_pandas.parquet"}, Options{Fields: map[string]string{
		"question": "prompt.0.content", "golden_answers": "reward_model.ground_truth.target.0",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if q := set.Questions[0]; q.Text != "Answer the given question. Question: when did the north tower open?\n" || !reflect.DeepEqual(q.Objectives, one("14 December 1972")) {
		t.Errorf("mapped: %+v", q)
	}
}

func TestParquetOfPandasObjectives(t *testing.T) {
	set, err := Load([]string{"testdata/objectives_pandas.parquet"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Question{
		{ID: "7", Text: "capital of Peru?", Objectives: one("Lima")},
		{ID: "8", Text: "two things?", Objectives: [][]string{{"a", "b"}, {"c"}}},
		{ID: "9", Text: "x and y?", Objectives: [][]string{{"x"}, {"y"}}},
	}
	if !reflect.DeepEqual(set.Questions, want) {
		t.Errorf("got %+v", set.Questions)
	}
}

func TestParquetWithoutGoldenColumn(t *testing.T) {
	path := "testdata/question_answer_pandas.parquet"
	_, err := Load([]string{path}, Options{})
	for _, want := range []string{path, "row 1", "reward_model.ground_truth.target", "columns found: answer, question", `"golden_answers": [`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	set, err := Load([]string{path}, Options{Fields: map[string]string{"golden_answers": "answer"}})
	if err != nil || !reflect.DeepEqual(set.Questions[1], Question{ID: "2", Text: "q2", Objectives: one("a2")}) {
		t.Errorf("with the answer mapped: %+v, %v", set, err)
	}
}

type message struct {
	Role    string `parquet:"role"`
	Content string `parquet:"content"`
}

type verlRow struct {
	DataSource  string    `parquet:"data_source"`
	Prompt      []message `parquet:"prompt,list"`
	RewardModel struct {
		GroundTruth struct {
			Target []string `parquet:"target,list"`
		} `parquet:"ground_truth"`
	} `parquet:"reward_model"`
	Context []struct {
		Title     string   `parquet:"title"`
		Sentences []string `parquet:"sentences,list"`
	} `parquet:"context,list"`
}

func verlRows(n int) []verlRow {
	rows := make([]verlRow, n)
	for k := range rows {
		r := &rows[k]
		r.DataSource = "made"
		r.Prompt = []message{{"system", "s"}, {"user", fmt.Sprintf("question %d?", k)}}
		r.RewardModel.GroundTruth.Target = []string{fmt.Sprint("answer ", k), "other"}[:1+k%2]
	}
	return rows
}

func writeParquet[T any](t *testing.T, rows []T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "q.parquet")
	if err := parquet.WriteFile(path, rows, parquet.MaxRowsPerRowGroup(100)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParquetRowGroups(t *testing.T) {
	const n = 1000
	set, err := Load([]string{writeParquet(t, verlRows(n))}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Questions) != n {
		t.Fatalf("%d questions", len(set.Questions))
	}
	for k, q := range set.Questions {
		want := Question{
			ID: fmt.Sprint(k + 1), Text: fmt.Sprintf("question %d?", k), Source: "made",
			Objectives: one([]string{fmt.Sprint("answer ", k), "other"}[:1+k%2]...),
		}
		if !reflect.DeepEqual(q, want) {
			t.Fatalf("got %+v, want %+v", q, want)
		}
	}
}

func TestParquetRowWithoutGoldenAnswer(t *testing.T) {
	rows := verlRows(300)
	rows[249].RewardModel.GroundTruth.Target = nil
	_, err := Load([]string{writeParquet(t, rows)}, Options{})
	if err == nil || !strings.Contains(err.Error(), "row 250: ") || !strings.Contains(err.Error(), "no golden answer") {
		t.Errorf("got %v", err)
	}
}

func TestParquetColumnTypes(t *testing.T) {
	type numbers struct {
		ID     float64 `parquet:"id"`
		Text   []byte  `parquet:"question"` // no string mark
		Golden int64   `parquet:"golden_answers"`
		Hops   int32   `parquet:"hops"`
	}
	path := writeParquet(t, []numbers{{ID: 3, Text: []byte("q"), Golden: 12, Hops: 2}})
	_, err := Load([]string{path}, Options{})
	if err == nil || !strings.Contains(err.Error(), "row 1: golden_answers is the number 12, want a string") {
		t.Errorf("got %v", err)
	}
	set, err := Load([]string{path}, Options{Fields: map[string]string{"golden_answers": "question"}})
	if err != nil || !reflect.DeepEqual(set.Questions, []Question{{ID: "3", Text: "q", Objectives: one("q"), Hops: 2}}) {
		t.Errorf("got %+v, %v", set, err)
	}
	type nothing struct {
		Other string `parquet:"other"`
	}
	_, err = Load([]string{writeParquet(t, []nothing{{"x"}})}, Options{})
	if err == nil || !strings.Contains(err.Error(), "missing column question; columns found: other") {
		t.Errorf("got %v", err)
	}
	_, err = Load([]string{writeParquet[verlRow](t, nil)}, Options{})
	if err == nil || !strings.Contains(err.Error(), "holds no question") {
		t.Errorf("got %v", err)
	}
}

// Pages in LZ4 are not read: a broken one would take all memory. Columns that nobody wants may be in it.
func TestParquetInLZ4(t *testing.T) {
	type answered struct {
		Question string `parquet:"question"`
		Golden   string `parquet:"golden_answers"`
		Other    string `parquet:"other,lz4"`
	}
	if _, err := Load([]string{writeParquet(t, []answered{{"q", "a", "x"}})}, Options{}); err != nil {
		t.Errorf("a column that is not read: %v", err)
	}
	type wanted struct {
		Question string `parquet:"question,lz4"`
		Golden   string `parquet:"golden_answers,zstd"`
	}
	path := writeParquet(t, []wanted{{"q", "a"}})
	_, err := Load([]string{path}, Options{})
	if want := "column question is compressed with LZ4, allowed in Parquet are none, snappy"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

// TestBrokenParquet cuts a file short everywhere and damages it: each must be an error or load,
// never a crash.
func TestBrokenParquet(t *testing.T) {
	whole, err := os.ReadFile("testdata/search_r1_pandas.parquet")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "q.parquet")
	load := func(data []byte) error {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load([]string{path}, Options{})
		return err
	}
	for n := 4; n < len(whole); n += 97 {
		if err := load(whole[:n]); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	footer := append(bytes.Clone(whole[:len(whole)-8]), 0xff, 0xff, 0xff, 0x7f, 'P', 'A', 'R', '1')
	if err := load(footer); err == nil || !strings.Contains(err.Error(), "its footer of 2147483647 bytes is longer than the file") {
		t.Errorf("a footer of 2 GB: %v", err)
	}
	generator := rand.New(rand.NewPCG(1, 2))
	failed := 0
	for range 300 {
		damaged := bytes.Clone(whole)
		for range 3 {
			damaged[4+generator.IntN(len(damaged)-4)] ^= byte(1 + generator.IntN(255))
		}
		if load(damaged) != nil {
			failed++
		}
	}
	if failed < 50 {
		t.Errorf("only %d of 300 damaged files were refused", failed)
	}
}
