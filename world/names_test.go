package world

import (
	"regexp"
	"slices"
	"testing"
)

func TestNamesAreDifferentWords(t *testing.T) {
	word := regexp.MustCompile(`^[A-Z][a-z]{3,}$`)
	seen := map[string]bool{}
	for k := range kind(kinds) {
		all := names(k, 5000)
		if len(all) != 5000 {
			t.Fatalf("%d names of the kind %s", len(all), kindNames[k])
		}
		for _, name := range all {
			if seen[name] || !word.MatchString(name) {
				t.Fatalf("the name %q of the kind %s is no word or occurs twice", name, kindNames[k])
			}
			seen[name] = true
		}
		if few := names(k, 70); !slices.Equal(few, all[:70]) {
			t.Errorf("the first names of the kind %s depend on how many there are", kindNames[k])
		}
	}
	for _, word := range words("Search, remember, answer.") {
		if seen[word] {
			t.Errorf("the word %q is a name", word)
		}
	}
}
