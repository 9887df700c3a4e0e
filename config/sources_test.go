package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestListsOfTables(t *testing.T) {
	config, err := Load("testdata/sources.good.toml", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Source{
		{
			Files: List{"nq/*.parquet", "more.jsonl"}, Name: "nq", Weight: 2.5, Sample: 1000, Seed: 3, Aliases: "id_aliases.json", MaxQuestionChars: 400,
			Fields: Fields{Question: "query", GoldenAnswers: "answers"},
		},
		{Files: List{"hotpotqa.json"}, Weight: 1},
	}
	if !reflect.DeepEqual(config.Data.Mix, want) {
		t.Errorf("got %+v", config.Data.Mix)
	}
	if want := []Source{{Files: List{"bamboogle.csv"}, Weight: 1, Fields: Fields{Hops: "depth"}}}; !reflect.DeepEqual(config.Data.EvalMix, want) {
		t.Errorf("got %+v", config.Data.EvalMix)
	}
	first := reflect.ValueOf(config.Data.Mix[0])
	for k := range first.NumField() {
		if reflect.DeepEqual(first.Field(k).Interface(), newElement(reflect.TypeFor[[]Source]()).Field(k).Interface()) {
			t.Errorf("%s has its default", first.Type().Field(k).Name)
		}
	}
	changed, err := Load("testdata/sources.good.toml", []string{`data.mix=[{files = "x", weight = 2}]`})
	if err != nil {
		t.Fatal(err)
	}
	if want := []Source{{Files: List{"x"}, Weight: 2}}; !reflect.DeepEqual(changed.Data.Mix, want) {
		t.Errorf("overridden: %+v", changed.Data.Mix)
	}
	differences := Diff(config, changed)
	if len(differences) != 1 || !strings.HasPrefix(differences[0].String(), `data.mix: [{files = ["nq/*.parquet", "more.jsonl"], name = "nq", weight = 2.5, `) ||
		!strings.Contains(differences[0].String(), ` → [{files = ["x"], `) {
		t.Errorf("%q", differences)
	}
}

func TestBadListsOfTables(t *testing.T) {
	const base = "testdata/minimal.good.toml"
	for set, want := range map[string]string{
		`data.mix=[{files = "x"}]`: base + ": data.train is set beside data.mix, allowed: one of the two",
		`data.mix=3`:               "--set data.mix=3: data.mix is a whole number, want a list of tables",
		`data.mix=[3]`:             "--set data.mix=[3]: data.mix is a list, want a list of tables",
		`data={train = [], mix = [{weight = 2}]}`:              base + ": files of entry 1 of data.mix is not set, want one or more question files",
		`data={train = [], mix = [{files = "x", weight = 0}]}`: base + ": weight of entry 1 of data.mix is 0, allowed: 1e-06 to 1e+06",
		`data={train = [], mix = [{files = "x", wight = 0}]}`:  `--set data={train = [], mix = [{files = "x", wight = 0}]}: unknown key wight; did you mean weight?`,
		`data={train = [], mix = [{files = "x", weight = "a"}]}`: `--set data={train = [], mix = [{files = "x", weight = "a"}]}: ` +
			"data.mix.weight is a string, want a number",
		`data.eval_mix=[{files = "x", weight = 2}]`:  base + ": weight of entry 1 of data.eval_mix is 2, allowed: 1: an evaluation asks each question once",
		`data.eval_mix=[{files = "x", sample = -1}]`: base + ": sample of entry 1 of data.eval_mix is -1, allowed: 0 or more",
		`data.compose.train=[2, 11]`:                 base + ": data.compose.train is 11, allowed: 1 to 10",
		`data.compose.eval=[2, 4, 2]`:                base + ": data.compose.eval is 2 twice, allowed: each number once",
		`data.compose.eval=["2"]`:                    `--set data.compose.eval=["2"]: data.compose.eval is a list, want a list of whole numbers`,
		`data.compose.eval=2`:                        `--set data.compose.eval=2: data.compose.eval is a whole number, want a list of whole numbers`,
	} {
		if _, err := Load(base, []string{set}); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", set, err, want)
		}
	}
	_, err := parse("run.toml", "[run]\n[[data.mix]]\nfiles = \"x\"\n[[data.mix]]\nfile = \"y\"\n", nil)
	if want := "run.toml: unknown key file (line 5); did you mean files?"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
