package eval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/rollout"
)

// FormatVersion is the version of results.json that this program writes and reads.
const FormatVersion = 1

// Results is what results.json holds. Two evaluations of the same weights, questions and settings
// differ in nothing but Finished and the Seconds of Contexts.
type Results struct {
	FormatVersion int            `json:"format_version"`
	Finished      time.Time      `json:"finished"`
	Model         Model          `json:"model"`
	Data          Data           `json:"data"`
	Settings      map[string]any `json:"settings"` // what the answers depend on, by dotted key of the config
	Contexts      []*Result      `json:"contexts"`
}

// Model is the model that answered. Hashes are hex SHA-256.
type Model struct {
	Path          string `json:"path"`
	WeightsHash   string `json:"weights_hash"`
	TokenizerHash string `json:"tokenizer_hash"`
}

// Data are the questions that were asked.
type Data struct {
	Files     []string `json:"files"`
	Questions int      `json:"questions"`
	Hash      string   `json:"hash"`    // dataset.Hash of the questions asked
	Dropped   []string `json:"dropped"` // ids of questions whose prompt is too long, not asked
}

// Write replaces the file at path by the results.
func (r *Results) Write(path string) error {
	r.FormatVersion = FormatVersion
	return durable.WriteFile(path, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", " ")
		return encoder.Encode(r)
	})
}

// Read reads results that Write wrote; what is wrong with the file is a usage fault.
func Read(path string) (*Results, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.Usage(fmt.Errorf("results %s cannot be read: %w", path, durable.Bare(err)))
	}
	var results Results
	if err := json.Unmarshal(data, &results); err != nil {
		return nil, fault.Usage(fmt.Errorf("%s holds no results of an evaluation: %w", path, err))
	}
	if results.FormatVersion != FormatVersion {
		return nil, fault.Usage(fmt.Errorf("%s: format_version is %d, this program reads %d", path, results.FormatVersion, FormatVersion))
	}
	if slices.Contains(results.Contexts, nil) || len(results.Contexts) == 0 {
		return nil, fault.Usage(fmt.Errorf("%s holds the results of no context, at least one is needed", path))
	}
	if results.Settings == nil {
		return nil, fault.Usage(fmt.Errorf("%s has no settings, the answers depend on them", path))
	}
	for _, result := range results.Contexts {
		if result.Overall.N < 1 {
			return nil, fault.Usage(fmt.Errorf("%s: overall.n in %s context is %d, allowed is 1 or more", path, result.Context, result.Overall.N))
		}
	}
	return &results, nil
}

// Comparable refuses, as a usage fault, to compare with results of other questions, or in other
// contexts only. path is where the earlier results lie.
func (r *Results) Comparable(path string, data Data, contexts []rollout.Context) error {
	if r.Data.Hash != data.Hash {
		return fault.Usage(fmt.Errorf("%s holds results on other questions: %d with the hash %s, here are %d with %s",
			path, r.Data.Questions, r.Data.Hash, data.Questions, data.Hash))
	}
	if slices.ContainsFunc(contexts, func(context rollout.Context) bool { return r.in(context) != nil }) {
		return nil
	}
	return fault.Usage(fmt.Errorf("%s holds no results in %v context", path, contexts))
}

// in is the result in a context, nil without one.
func (r *Results) in(context rollout.Context) *Result {
	for _, result := range r.Contexts {
		if result.Context == context {
			return result
		}
	}
	return nil
}

// changed lists the settings that differ from earlier ones.
func (r *Results) changed(before *Results) ([]string, error) {
	all := maps.Clone(before.Settings)
	maps.Copy(all, r.Settings)
	var changes []string
	var failed error
	text := func(settings map[string]any, key string) []byte {
		value, err := json.Marshal(settings[key])
		failed = errors.Join(failed, err)
		return value
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if a, b := text(before.Settings, key), text(r.Settings, key); !bytes.Equal(a, b) {
			changes = append(changes, fmt.Sprintf("%s: %s → %s", key, a, b))
		}
	}
	return changes, failed
}
