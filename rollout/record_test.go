package rollout

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/retrieval"
)

// written is a record as trajectory files hold it: tags are not escaped.
func written(t *testing.T, record *Record) []byte {
	t.Helper()
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(record); err != nil {
		t.Fatal(err)
	}
	return line.Bytes()
}

func TestRecordReadsBack(t *testing.T) {
	g := newRig(t, func(r *Rules) { r.Prefill = "<mem>" })
	g.say("m</mem><think>t</think><search>q</search>")
	g.result(passageText(0, retrieval.Passage{Contents: "\"München\"\n東京 <b>&</b>"}))
	g.say("n</mem><think>t</think><answer>a & b</answer>")
	trajectory := g.trajectory()
	question := dataset.Question{ID: "q1", Text: "who & why?", Objectives: [][]string{{"Ada", "Lovelace"}}}
	record := NewRecord(5, question, 2, trajectory, g.vocabulary.decode)
	reward, nan := Number(0.25), Number(math.NaN())
	record.Turns[1].MemoryReward = &reward
	record.Score = &nan
	record.Advantages = slices.Repeat(Floats{0.1}, len(trajectory.ResponseIDs))
	line := written(t, record)
	for _, part := range []string{"<mem>", "a & b", "東京 <b>&</b>", `"memory_reward":0.25`, `"score":null`, `"advantages":[0.1,0.1`} {
		if !bytes.Contains(line, []byte(part)) {
			t.Errorf("the line lacks %q:\n%s", part, line)
		}
	}
	var back Record
	if err := json.Unmarshal(line, &back); err != nil {
		t.Fatal(err)
	}
	if back.Score != nil { // null reads as no score
		t.Errorf("score %v", *back.Score)
	}
	back.Score = record.Score
	if !reflect.DeepEqual(&back, record) {
		t.Errorf("read back:\n%+v\nwritten:\n%+v", &back, record)
	}
	if back.Turns[1].Text != trajectory.Turns[1].Text || !slices.Equal(back.LogProbs, trajectory.LogProbs) {
		t.Error("the record does not hold the trajectory's text and log-probs")
	}
}

func TestNumbersThatAreNotFinite(t *testing.T) {
	values := Floats{1, float32(math.NaN()), float32(math.Inf(-1)), -1e-30}
	data, err := json.Marshal(values)
	if want := "[1,null,null,-1e-30]"; err != nil || string(data) != want {
		t.Errorf("%s, %v, want %s", data, err, want)
	}
	var back Floats
	if err := json.Unmarshal(data, &back); err != nil || len(back) != 4 || back[3] != -1e-30 || !math.IsNaN(float64(back[1])) {
		t.Errorf("read back as %v, %v", back, err)
	}
	var number Number
	if err := json.Unmarshal([]byte("null"), &number); err != nil || !math.IsNaN(float64(number)) {
		t.Errorf("null reads as %v, %v", number, err)
	}
}

func TestRecordOfAFailedTrajectory(t *testing.T) {
	g := newRig(t, nil)
	g.fail(FailedEngine, "out of memory")
	record := NewRecord(1, dataset.Question{}, 0, g.trajectory(), g.vocabulary.decode)
	if line := written(t, record); !bytes.Contains(line, []byte(`"stop":"failed_engine","stop_detail":"no_tokens: out of memory"`)) || !bytes.Contains(line, []byte(`"answer":null`)) {
		t.Errorf("%s", line)
	}
}
