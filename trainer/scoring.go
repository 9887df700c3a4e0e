package trainer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/prefix"
	"github.com/mempo-train/mempo-train/trainer/batch"
	"github.com/mempo-train/mempo-train/trainer/optim"
)

// The forms of scoring, which give the same numbers but for rounding: every row whole; rows that
// begin alike as one tree; and that, with memories measured against the cache of the rollout.
const (
	FormNaive  = "naive"
	FormShared = "shared"
	FormCached = "cached"
)

// ScoringOptions say where log-probabilities without gradient come from; see the config's scoring
// table.
type ScoringOptions struct {
	Form               string
	RolloutOldLogProbs bool // take the log-probs seen when sampling, and compute those of a sample anew
}

func (o ScoringOptions) validate() error {
	if o.Form != FormNaive && o.Form != FormShared && o.Form != FormCached {
		return fmt.Errorf("scoring form is %q, allowed are %q, %q and %q", o.Form, FormNaive, FormShared, FormCached)
	}
	return nil
}

// ResponseScores are aligned with the rows that may be trained on; each is aligned with the row's
// positions.
type ResponseScores struct {
	Old, Ref [][]float32 // what the update goes by
	// Start is what the actor at the start of the step says; empty for a row that was not computed
	// anew.
	Start []model.RowScores
}

// scoreActor is the extra forward pass, in which the golden answer is scored behind the full context
// and behind the memory alone, and the pass for the log-probabilities at the start of the step.
func (t *Trainer) scoreActor(ctx context.Context, step int, graded []Graded, measured Measured, rows *Rows, clock *clock) (Memories, *ResponseScores, error) {
	memories := noMemories(graded)
	answers, turns, err := t.memoryRows(graded, measured, memories)
	if err != nil {
		return nil, nil, err
	}
	chosen := t.chosen(step, rows.all)
	var answerScores, startScores []model.RowScores
	if t.Scoring.Form == FormNaive {
		answerScores, err = t.scoreWhole(ctx, t.actor, stageMemory, answers, batch.Split(lengths(answers), t.micro.Tokens), memoryTemperature, clock)
		if err == nil {
			startScores, err = t.scoreResponses(ctx, t.actor, stageOld, step, rows, chosen, clock)
		}
	} else {
		passes := []pass{{stageOld, responseRows(rows.all, chosen), t.Update.Loss.Temperature}, {stageMemory, answers, memoryTemperature}}
		var scores []model.RowScores
		if scores, err = t.scoreShared(ctx, t.actor, passes, clock); err == nil {
			startScores, answerScores = scores[:len(chosen)], scores[len(chosen):]
		}
	}
	if err != nil {
		return nil, nil, err
	}
	for k, turn := range turns {
		if *turn, err = t.measure(answerScores[2*k], answerScores[2*k+1]); err != nil {
			return nil, nil, err
		}
	}
	return memories, t.oldLogProbs(rows.all, chosen, startScores), nil
}

// oldLogProbs are what the ratio is held against. Without a reference nothing else is needed in its
// place.
func (t *Trainer) oldLogProbs(rows []trainedRow, chosen []int, scores []model.RowScores) *ResponseScores {
	r := &ResponseScores{Old: make([][]float32, len(rows)), Start: make([]model.RowScores, len(rows))}
	for k, row := range chosen {
		r.Start[row] = scores[k]
	}
	for k, row := range rows {
		r.Old[k] = r.Start[k].LogProbs
		if t.Scoring.RolloutOldLogProbs {
			r.Old[k] = row.sampled
		}
	}
	r.Ref = r.Old
	return r
}

// scoreReference computes the log-probabilities under the frozen reference.
func (t *Trainer) scoreReference(ctx context.Context, step int, rows *Rows, scores *ResponseScores, clock *clock) error {
	if t.reference == nil {
		return nil
	}
	all := make([]int, len(rows.all))
	for k := range all {
		all[k] = k
	}
	var ref []model.RowScores
	var err error
	if t.Scoring.Form == FormNaive {
		ref, err = t.scoreResponses(ctx, t.reference, stageRef, step, rows, all, clock)
	} else {
		ref, err = t.scoreShared(ctx, t.reference, []pass{{stageRef, responseRows(rows.all, all), t.Update.Loss.Temperature}}, clock)
	}
	if err != nil {
		return err
	}
	scores.Ref = make([][]float32, len(rows.all))
	for k := range scores.Ref {
		scores.Ref[k] = ref[k].LogProbs
	}
	return nil
}

// sampleStream keeps the choice of trajectories that are computed anew apart from other uses of the
// run's seed.
const sampleStream = 0x73616d70

// chosen lists the rows whose log-probabilities are computed anew: all, or where they come from the
// rollout those of one trajectory of each question.
func (t *Trainer) chosen(step int, rows []trainedRow) []int {
	members := map[int][]int{} // by group
	for _, row := range rows {
		if of := members[row.group]; len(of) == 0 || of[len(of)-1] != row.member {
			members[row.group] = append(of, row.member)
		}
	}
	var all []int
	for k, row := range rows {
		if t.Scoring.RolloutOldLogProbs {
			of := members[row.group]
			random := rand.New(rand.NewPCG(t.Rollout.Seed^sampleStream, uint64(step)<<16|uint64(row.group)))
			if of[random.IntN(len(of))] != row.member {
				continue
			}
		}
		all = append(all, k)
	}
	return all
}

func responseRows(rows []trainedRow, chosen []int) []model.ScoreRow {
	all := make([]model.ScoreRow, len(chosen))
	for k, row := range chosen {
		all[k] = model.ScoreRow{IDs: rows[row].ids, Positions: rows[row].positions}
	}
	return all
}

// scoreResponses scores whole rows in the micro-batches that the first epoch of the update has if no
// question drops out. The ratio of the first update then is 1 up to rounding: the update computes
// beginnings that rows have in common once.
func (t *Trainer) scoreResponses(ctx context.Context, scorer model.Scorer, stage string, step int, rows *Rows, chosen []int, clock *clock) ([]model.RowScores, error) {
	var order []int // the places in chosen
	var parts []batch.Part
	for _, mini := range t.minibatches(step, 0, rows, func(int) bool { return false }) {
		lengths := make([]int, len(mini))
		for k, row := range mini {
			lengths[k] = len(rows.all[row].ids)
		}
		for _, micro := range batch.Split(lengths, t.micro.Tokens) {
			start := len(order)
			for _, row := range mini[micro.Start:micro.End] {
				if k, found := slices.BinarySearch(chosen, row); found {
					order = append(order, k)
				}
			}
			if len(order) > start {
				parts = append(parts, batch.Part{Start: start, End: len(order)})
			}
		}
	}
	inOrder := make([]int, len(order))
	for k, place := range order {
		inOrder[k] = chosen[place]
	}
	scores, err := t.scoreWhole(ctx, scorer, stage, responseRows(rows.all, inOrder), parts, t.Update.Loss.Temperature, clock)
	if err != nil {
		return nil, err
	}
	all := make([]model.RowScores, len(chosen))
	for k, place := range order {
		all[place] = scores[k]
	}
	return all, nil
}

// scoreWhole runs every row whole, in the given parts, and shows the progress.
func (t *Trainer) scoreWhole(ctx context.Context, scorer model.Scorer, stage string, rows []model.ScoreRow, parts []batch.Part, temperature float64, clock *clock) ([]model.RowScores, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	defer clock.start(stage)()
	add, done := t.stage(stage, len(rows))
	defer done()
	var all []model.RowScores
	for _, part := range parts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		batch := rows[part.Start:part.End]
		scores, err := optim.Score(scorer, batch, temperature)
		if err != nil {
			return nil, err
		}
		for _, row := range batch {
			clock.tokens(stage, len(row.IDs))
		}
		all = append(all, scores...)
		add(len(batch))
	}
	return all, nil
}

// pass is what a stage wants scored.
type pass struct {
	stage       string
	rows        []model.ScoreRow
	temperature float64
}

// scoreShared runs the rows of all passes as one tree, in a session of its own, and gives their
// scores one after the other. Tokens that several passes need count for the first of them, and the
// time is divided as the tokens are.
func (t *Trainer) scoreShared(ctx context.Context, policy model.Policy, passes []pass, clock *clock) (scores []model.RowScores, err error) {
	var rows []prefix.Row
	var names []string
	tokens := make([]int, len(passes))
	total := 0
	for k, p := range passes {
		if len(p.rows) == 0 {
			continue
		}
		for _, row := range p.rows {
			rows = append(rows, prefix.Row{ScoreRow: row, Temperature: p.temperature})
		}
		names = append(names, p.stage)
		shared, _ := prefix.Tokens(rows)
		tokens[k], total = shared-total, shared
	}
	if len(rows) == 0 {
		return nil, nil
	}
	begun := time.Now()
	session, err := policy.NewSession(model.SessionOptions{})
	if err != nil {
		return nil, fmt.Errorf("no session for scoring: %w", err)
	}
	add, done := t.stage(strings.Join(names, ", "), len(rows))
	scores, err = prefix.Score(ctx, session, rows, t.Update.MicroBatchTokens, add)
	done()
	if err := errors.Join(err, session.Close()); err != nil {
		return nil, err
	}
	seconds := time.Since(begun).Seconds()
	for k, p := range passes {
		if len(p.rows) > 0 {
			clock.tokens(p.stage, tokens[k])
			clock.took(p.stage, seconds*float64(tokens[k])/float64(total))
		}
	}
	return scores, nil
}

func lengths(rows []model.ScoreRow) []int {
	all := make([]int, len(rows))
	for k, row := range rows {
		all[k] = len(row.IDs)
	}
	return all
}

func (t *Trainer) stage(name string, total int) (add func(int), done func()) {
	if t.watch.Stage == nil || total == 0 {
		return func(int) {}, func() {}
	}
	return t.watch.Stage(name, total)
}
