package config

import "github.com/BurntSushi/toml"

// Kind is what a TOML file is for.
type Kind string

// The kinds of file.
const (
	KindRun        Kind = "run"
	KindEvaluation Kind = "evaluation"
	KindSFT        Kind = "sft"
	KindWorld      Kind = "world"
	KindIndex      Kind = "index"
	KindRetrieve   Kind = "retrieve"
)

// KindOf tells the kind of a file by its tables: [world], [sft], [index] and [retrieve] are in no other, and an
// evaluation trains no steps. A file that cannot be read as TOML counts as a run, whose reader says
// what is wrong with it.
func KindOf(path string) (Kind, error) {
	text, err := readFile(path)
	if err != nil {
		return "", err
	}
	var tables map[string]any
	if _, err := toml.Decode(text, &tables); err != nil {
		return KindRun, nil
	}
	run, _ := tables["run"].(map[string]any)
	has := func(name string) bool { return tables[name] != nil }
	switch {
	case has("world"):
		return KindWorld, nil
	case has("sft"):
		return KindSFT, nil
	case has("index"):
		return KindIndex, nil
	case has("retrieve"):
		return KindRetrieve, nil
	case has("eval") && run["steps"] == nil:
		return KindEvaluation, nil
	}
	return KindRun, nil
}
