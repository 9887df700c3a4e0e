package bytealphabet

import (
	"testing"
	"unicode/utf8"
)

func TestKnownSpellings(t *testing.T) {
	for raw, want := range map[string]string{
		"":             "",
		"the":          "the",
		" the":         "Ġthe",
		"\n":           "Ċ",
		"\t":           "ĉ",
		"\x00":         "Ā",
		"\x7f":         "ġ",
		"\xad":         "Ń",
		"\xe6\x9d\xb1": "æĿ±",
		"\xff":         "ÿ",
	} {
		if got := Spell(raw); got != want {
			t.Errorf("Spell(%q) = %q, want %q", raw, got, want)
		}
	}
}

func TestEveryByteHasItsOwnCharacter(t *testing.T) {
	seen := map[string]bool{}
	for b := range 256 {
		raw := string([]byte{byte(b)})
		spelled := Spell(raw)
		if seen[spelled] || utf8.RuneCountInString(spelled) != 1 {
			t.Errorf("byte %#x is spelled %q", b, spelled)
		}
		seen[spelled] = true
		if back, ok := Read(spelled); !ok || back != raw {
			t.Errorf("Read(%q) = %q, %v, want %q", spelled, back, ok, raw)
		}
	}
}

func TestReadRefusesOtherCharacters(t *testing.T) {
	for _, s := range []string{" ", "a b", "\n", "｜", "\u00ad", "\u0144", "東", "\U0001f600"} {
		if raw, ok := Read(s); ok {
			t.Errorf("Read(%q) = %q, want a refusal", s, raw)
		}
	}
}
