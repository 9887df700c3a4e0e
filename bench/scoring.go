package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/prefix"
	"github.com/mempo-train/mempo-train/reward"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/batch"
)

// responseRows score every sampled token of every trajectory, at the temperature of the rollouts.
func (b *Bench) responseRows() []prefix.Row {
	var rows []prefix.Row
	for _, t := range b.trajectories {
		rows = append(rows, prefix.Row{
			ScoreRow: model.ScoreRow{IDs: t.FullIDs(), Positions: t.ModelPositions()}, Temperature: b.Trainer.Update.Loss.Temperature,
		})
	}
	return rows
}

// memoryRows score the answer behind every context of the extra forward pass.
func (b *Bench) memoryRows() []prefix.Row {
	var rows []prefix.Row
	for k, t := range b.trajectories {
		for _, pair := range b.pairs(k, t) {
			rows = append(rows, prefix.Row{ScoreRow: pair.Full.ScoreRow, Temperature: 1}, prefix.Row{ScoreRow: pair.Memory.ScoreRow, Temperature: 1})
		}
	}
	return rows
}

func (b *Bench) pairs(k int, t *rollout.Trajectory) []reward.MemoryPair {
	return reward.MemoryPairs(t, nil, b.script.answers[k/b.Shape.GroupSize])
}

func (b *Bench) memoryTokens() int { return tokensOf(b.memoryRows()) }

func tokensOf(rows []prefix.Row) int {
	sum := 0
	for _, row := range rows {
		sum += len(row.IDs)
	}
	return sum
}

// naive scores rows whole, in micro-batches, one pass after the other; one row warms it up.
func (b *Bench) naive(name string, scorer model.Scorer, passes ...[]prefix.Row) stage {
	run := func(ctx context.Context, passes [][]prefix.Row) ([]timing, error) {
		return b.timed(name, func() error {
			for _, rows := range passes {
				if _, err := b.score(ctx, scorer, rows); err != nil {
					return err
				}
			}
			return nil
		})
	}
	last := passes[len(passes)-1]
	return stage{
		name: name, naive: tokensOf(slices.Concat(passes...)),
		warm: func(ctx context.Context) error {
			_, err := run(ctx, [][]prefix.Row{last[:min(1, len(last))]})
			return err
		},
		run: func(ctx context.Context) ([]timing, error) { return run(ctx, passes) },
	}
}

// score scores rows of one temperature in micro-batches and returns their log-probs.
func (b *Bench) score(ctx context.Context, scorer model.Scorer, rows []prefix.Row) (logProbs [][]float32, err error) {
	lengths := make([]int, len(rows))
	plain := make([]model.ScoreRow, len(rows))
	for k, row := range rows {
		lengths[k], plain[k] = len(row.IDs), row.ScoreRow
	}
	for _, part := range batch.Split(lengths, b.Shape.MicroBatchTokens) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		scores, err := scorer.Score(plain[part.Start:part.End], rows[part.Start].Temperature)
		if err != nil {
			return nil, err
		}
		for _, s := range scores {
			logProbs = append(logProbs, s.LogProbs)
		}
	}
	return logProbs, nil
}

// shared scores rows as one tree, in a session of its own; one row warms it up.
func (b *Bench) shared(name string, scorer model.Policy, rows []prefix.Row) stage {
	run := func(ctx context.Context, rows []prefix.Row) ([]timing, error) {
		return b.timed(name, func() (err error) {
			session, err := scorer.NewSession(model.SessionOptions{})
			if err != nil {
				return err
			}
			_, err = prefix.Score(ctx, session, rows, b.Shape.MicroBatchTokens, nil)
			return errors.Join(err, session.Close())
		})
	}
	return stage{
		name: name, naive: tokensOf(rows),
		warm: func(ctx context.Context) error {
			_, err := run(ctx, rows[:min(1, len(rows))])
			return err
		},
		run: func(ctx context.Context) ([]timing, error) { return run(ctx, rows) },
	}
}

// cached scores the branches of every trajectory against caches that hold it, as a rollout does when
// its trajectories end together. Filling the caches is not timed.
func (b *Bench) cached() stage {
	var session model.Session
	var pieces []model.Piece
	return stage{
		name: stageMemoryCached, naive: b.memoryTokens(),
		warm: func(ctx context.Context) (err error) {
			if session, err = (&meteredScorer{b.actor, b.meter, nil}).NewSession(model.SessionOptions{}); err != nil {
				return err
			}
			if pieces, err = b.fill(ctx, session); err == nil && len(pieces) > 0 {
				_, err = session.Score(pieces[:1])
			}
			return err
		},
		run: func(ctx context.Context) ([]timing, error) {
			return b.timed(stageMemoryCached, func() error { return b.measureBranches(ctx, session, pieces) })
		},
		close: func() error {
			if session == nil {
				return nil
			}
			return session.Close()
		},
	}
}

// fill puts every trajectory into a row of a session, and lists the branches behind it.
func (b *Bench) fill(ctx context.Context, session model.Session) (pieces []model.Piece, err error) {
	first := 0 // row of the group's first trajectory, whose prompt the others share
	for k, t := range b.trajectories {
		var row int
		ids := t.FullIDs()
		if t.Member == 0 {
			row, err = session.Open()
			first = row
		} else {
			row, err = session.Fork(first, len(t.PromptIDs))
			ids = t.ResponseIDs
		}
		if err != nil {
			return nil, err
		}
		for chunk := range slices.Chunk(ids, b.Shape.MicroBatchTokens) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if _, err := session.Step([]model.RowInput{{Row: row, IDs: chunk}}); err != nil {
				return nil, err
			}
		}
		for _, pair := range b.pairs(k, t) {
			for _, context := range []reward.AnswerRow{pair.Full, pair.Memory} {
				branch := context.Branch(pair.Turn)
				pieces = append(pieces, model.Piece{Row: row, Length: branch.Length, IDs: branch.IDs, Positions: branch.Positions, Temperature: 1})
			}
		}
	}
	return pieces, nil
}

// measureBranches scores pieces, rollout.batch_tokens at a time.
func (b *Bench) measureBranches(ctx context.Context, session model.Session, pieces []model.Piece) error {
	lengths := make([]int, len(pieces))
	for k, p := range pieces {
		lengths[k] = len(p.IDs)
	}
	for _, part := range batch.Split(lengths, b.Trainer.Rollout.BatchTokens) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := session.Score(pieces[part.Start:part.End]); err != nil {
			return err
		}
	}
	return nil
}

// unscripted says that rollouts did not follow the script, which is a fault of the benchmark.
func unscripted(sampled, want int) error {
	return fmt.Errorf("rollouts sampled %d tokens, the script has %d", sampled, want)
}
