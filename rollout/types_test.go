package rollout

import "testing"

func TestValidateRefusesTrajectoriesOutOfLine(t *testing.T) {
	for name, change := range map[string]func(*Trajectory){
		"":                         func(*Trajectory) {},
		"mask too short":           func(t *Trajectory) { t.ResponseMask = t.ResponseMask[1:] },
		"log-probs too long":       func(t *Trajectory) { t.LogProbs = append(t.LogProbs, 0) },
		"turn beyond the response": func(t *Trajectory) { t.Turns[0].Tokens.End = 5 },
		"turn that ends early":     func(t *Trajectory) { t.Turns[0].Tokens = Span{3, 2} },
		"memory outside its turn":  func(t *Trajectory) { t.Turns[0].Memory.Start = 0 },
		"empty memory":             func(t *Trajectory) { t.Turns[0].Memory = Span{2, 2} },
	} {
		trajectory := &Trajectory{
			ResponseIDs: []int32{1, 2, 3, 4}, ResponseMask: make([]bool, 4), LogProbs: make([]float32, 4),
			Turns: []Turn{{Tokens: Span{1, 4}, HasMemory: true, Memory: Span{1, 3}}},
		}
		change(trajectory)
		if err := trajectory.Validate(); (err == nil) != (name == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStopReasonsAreOfOneKind(t *testing.T) {
	failed, truncated := 0, 0
	for _, reason := range StopReasons() {
		if reason.Failed() && reason.Truncated() {
			t.Errorf("%s is both a failure and a limit", reason)
		}
		if reason.Failed() {
			failed++
		}
		if reason.Truncated() {
			truncated++
		}
	}
	if len(StopReasons()) != 8 || failed != 3 || truncated != 3 {
		t.Errorf("%d reasons, %d failures, %d limits", len(StopReasons()), failed, truncated)
	}
}
