package eval

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/reward"
	"github.com/mempo-train/mempo-train/rollout"
)

// Every question counts once: the last chunk, which is not full, too.
func TestEveryQuestionCountsOnceWhateverTheChunk(t *testing.T) {
	asked := questions("yes", "no", "yes", "no", "yes")
	for chunk := 1; chunk <= 6; chunk++ {
		o := options()
		o.chunk = chunk
		var ended, total int
		o.Progress = func(e, of int) { ended, total = e, of }
		result := run(t, newWriter(answersAtOnce), asked, o)
		if result.Overall.N != 5 || result.Overall.EM != 0.6 || result.Overall.Trajectories != 5 {
			t.Errorf("chunks of %d: %+v", chunk, result.Overall)
		}
		for k, answer := range result.Answers {
			if answer.QuestionID != asked[k].ID || *answer.Prediction != asked[k].Text || answer.EM != rollout.Number([]float64{1, 0}[k%2]) {
				t.Errorf("chunks of %d: answer %d is %+v", chunk, k, answer)
			}
		}
		if ended != 5 || total != 5 {
			t.Errorf("chunks of %d: told of %d of %d", chunk, ended, total)
		}
	}
}

// The seeds are those of the question, the sample and the token, never of the chunk or of an
// earlier evaluation.
func TestSamplesDependOnTheSeedAlone(t *testing.T) {
	lucky := func(_ string, luck uint64) string {
		return turn("m", "answer", []string{"yes", "no", "perhaps"}[luck%3])
	}
	asked := questions("a", "b", "c", "d", "e", "a")
	evaluate := func(change func(*Options)) *Result {
		o := options()
		o.Rollout.GroupSize, o.Rollout.Sampling.Temperature = 4, 1
		change(&o)
		w := newWriter(lucky)
		result := run(t, w, asked, o)
		for seed, count := range w.draws {
			if count > 1 {
				t.Errorf("seed %d is drawn %d times", seed, count)
			}
		}
		return result
	}
	first := evaluate(func(*Options) {})
	for name, change := range map[string]func(*Options){
		"again":            func(*Options) {},
		"one at a time":    func(o *Options) { o.chunk = 1 },
		"in chunks of two": func(o *Options) { o.chunk = 8 },
		"at a later step":  func(o *Options) { o.Rollout.Step = 20 },
	} {
		if other := evaluate(change); !reflect.DeepEqual(withoutWork(first), withoutWork(other)) {
			t.Errorf("%s: %+v, before %+v", name, other.Overall, first.Overall)
		}
	}
	if other := evaluate(func(o *Options) { o.Rollout.Seed = 8 }); reflect.DeepEqual(first.Answers, other.Answers) {
		t.Error("another seed gives the same samples")
	}
	if p := first.Overall.PassAtK; len(p) != 4 || p[0] != first.Overall.EM || p[3] <= p[0] {
		t.Errorf("pass@k is %v, the mean %v", p, first.Overall.EM)
	}
}

// withoutWork leaves out what differs with the chunks: how often a shared prompt is computed.
func withoutWork(r *Result) Result {
	copied := *r
	copied.ForwardTokens = 0
	return copied
}

// A trajectory whose tool fails is in no mean; a question of which all fail is in n alone.
func TestFailedTrajectoriesAreCountedAndLeftOut(t *testing.T) {
	script := func(text string, _ uint64) string {
		question, rest, _ := strings.Cut(text, writeAt)
		if question == "breaks" || rest == "" && question == "no" {
			return turn("m", "search", question)
		}
		return turn("m", "answer", question)
	}
	service := tools()
	service.Search = searchFunc(func(query string) ([]retrieval.Passage, error) {
		if query == "breaks" {
			return nil, errors.New("the service is down")
		}
		return echo(query)
	})
	result, err := Run(t.Context(), newWriter(script), questions("yes", "no", "breaks", "yes"), options(), service)
	if err != nil {
		t.Fatal(err)
	}
	f := result.Overall
	if f.N != 4 || f.Trajectories != 4 || f.Failed != 1 || math.Abs(float64(f.EM)-2.0/3) > 1e-12 || math.Abs(float64(f.Turns)-4.0/3) > 1e-12 || math.Abs(float64(f.ToolCalls)-1.0/3) > 1e-12 {
		t.Errorf("%+v", f)
	}
	broken := result.Answers[2]
	if broken.Stop != rollout.FailedTool || !math.IsNaN(float64(broken.EM)) || !strings.Contains(broken.StopDetail, "down") {
		t.Errorf("the failed answer is %+v", broken)
	}
}

// With nothing but failures an evaluation ends early and says why.
func TestNothingValidEndsTheEvaluation(t *testing.T) {
	o := options()
	o.chunk = 2
	w := newWriter(func(string, uint64) string { return turn("m", "search", "x") })
	calls := 0
	service := tools()
	service.Concurrency = 1
	service.Search = searchFunc(func(string) ([]retrieval.Passage, error) {
		calls++
		return nil, errors.New("the service is down")
	})
	result, err := Run(t.Context(), w, questions("a", "b", "c", "d", "e"), o, service)
	var nothing *ErrNothingValid
	if result == nil || result.Overall.N != 2 || result.Overall.Failed != 2 || !math.IsNaN(float64(result.Overall.EM)) {
		t.Errorf("the result is %+v", result)
	}
	if !errors.As(err, &nothing) || !strings.Contains(err.Error(), "the service is down") || calls != 2 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// An engine that fails before the first token is no wrong answer.
func TestATrajectoryWithoutATokenIsNotGraded(t *testing.T) {
	o := options()
	o.Rollout.ContextLength = 40 // the second prompt leaves no room
	asked := questions("yes", strings.Repeat("long ", 20))
	o.Rollout.MaxTurnTokens = 5
	result := run(t, newWriter(answersAtOnce), asked, o)
	failed := result.Answers[1]
	if result.Overall.Failed != 1 || failed.Stop != rollout.FailedEngine || !strings.HasPrefix(failed.StopDetail, "no_tokens") || result.Overall.N != 2 {
		t.Errorf("%+v, overall %+v", failed, result.Overall)
	}
}

func TestFiguresPerContext(t *testing.T) {
	script := func(text string, _ uint64) string {
		if strings.HasSuffix(text, "about x\n</information>"+writeAt) {
			return turn("found", "answer", "yes; no")
		}
		return turn("nothing", "search", "x")
	}
	asked := []dataset.Question{{ID: "q", Text: "Q", Objectives: [][]string{{"yes"}, {"maybe", "no way"}}}}
	for _, of := range []rollout.Context{rollout.Limited, rollout.Full} {
		o := options()
		o.Rollout.Context = of
		var kept []*rollout.Trajectory
		o.Keep = func(question dataset.Question, draw int, trajectory *rollout.Trajectory, grade reward.TrajectoryGrade) error {
			if question.ID != "q" || draw != 0 || grade.EM != 0.5 {
				t.Errorf("kept %s, draw %d, %+v", question.ID, draw, grade)
			}
			kept = append(kept, trajectory)
			return nil
		}
		result := run(t, newWriter(script), asked, o)
		f := result.Overall
		if result.Context != of || f.EM != 0.5 || f.EMSum != 1 || f.F1 != 0.5 || f.Format != 1 || f.Turns != 2 || f.ToolCalls != 1 || f.Truncated != 0 || f.PassAtK != nil {
			t.Errorf("%s: %+v", of, f)
		}
		if len(kept) != 1 || float64(f.TotalTokens) != float64(kept[0].TokensProcessed()) || float64(f.PeakTokens) != float64(kept[0].PeakContext()) {
			t.Errorf("%s: %+v, kept %d", of, f, len(kept))
		}
		first := len("Q"+writeAt) + len(turn("nothing", "search", "x"))
		second := len("Q"+writeAt) + len("<mem>nothing</mem><search>x</search><information>\nDoc 1: about x\n</information>"+writeAt) + len(turn("found", "answer", "yes; no"))
		if of == rollout.Full {
			second += len("<think></think>")
		}
		if int(f.TotalTokens) != first+second || int(f.PeakTokens) != second {
			t.Errorf("%s: %v tokens, peak %v; want %d and %d", of, f.TotalTokens, f.PeakTokens, first+second, second)
		}
	}
}

func TestTruncatedAndMalformedAnswers(t *testing.T) {
	o := options()
	o.Rollout.MaxTurns = 2
	script := func(text string, _ uint64) string {
		if strings.HasPrefix(text, "loops") {
			return turn("m", "search", "x")
		}
		return "<answer>yes</answer>"
	}
	f := run(t, newWriter(script), questions("loops", "answers"), o).Overall
	if f.Truncated != 0.5 || f.Format != 0 || f.EM != 0.5 || f.Turns != 1.5 {
		t.Errorf("%+v", f)
	}
}

func TestTheEndOfTheContextEndsTheEvaluation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := newWriter(answersAtOnce)
	w.onStep = func(step int) error {
		if step == 3 {
			cancel()
		}
		return nil
	}
	if _, err := Run(ctx, w, questions("yes"), options(), tools()); !errors.Is(err, context.Canceled) || fault.Code(err) != fault.CodeOther {
		t.Errorf("got %v", err)
	}
}

func TestErrorsEndTheEvaluation(t *testing.T) {
	broken := newWriter(answersAtOnce)
	broken.onStep = func(int) error { return errors.New("the device is gone") }
	if _, err := Run(t.Context(), broken, questions("yes"), options(), tools()); err == nil || !strings.Contains(err.Error(), "the device is gone") {
		t.Errorf("got %v", err)
	}
	if _, err := Run(t.Context(), newWriter(answersAtOnce), nil, options(), tools()); err == nil {
		t.Error("no question was evaluated on")
	}
	o := options()
	o.Rollout.GroupSize = 0
	if _, err := Run(t.Context(), newWriter(answersAtOnce), questions("yes"), o, tools()); err == nil {
		t.Error("no sample was taken")
	}
	o = options()
	o.Keep = func(dataset.Question, int, *rollout.Trajectory, reward.TrajectoryGrade) error {
		return fmt.Errorf("disk full")
	}
	if _, err := Run(t.Context(), newWriter(answersAtOnce), questions("yes"), o, tools()); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got %v", err)
	}
}
