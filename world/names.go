package world

import "math/rand/v2"

// Pieces of names. A name is a head, middles where many are needed, and a tail of its kind. The
// consonants that meet are rare neighbours in words that mean something.
var (
	onsets   = []string{"B", "D", "F", "G", "H", "J", "K", "L", "M", "N", "P", "R", "S", "T", "V", "W", "Z"}
	vowels   = []string{"a", "e", "i", "o", "u"}
	clusters = []string{"vl", "xm", "zr", "kw"}
)

// endings are the last letters of the names of each kind; no two kinds share one.
var endings = [kinds][]string{person: {"an", "in"}, town: {"eth", "oth"}, country: {"ia", "ea"}, company: {"ax", "ex"}, book: {"im", "um"}}

// crowded is how many names that are taken are drawn before a longer one is.
const crowded = 20

// names gives the first names of a kind, all different: "Tovlan", "Kazroth". The same kind has the
// same ones always.
func names(of kind, count int) []string {
	random := stream("names", uint64(of))
	taken := make(map[string]bool, count)
	list := make([]string, 0, count)
	for len(list) < count {
		name := freshName(random, of, taken)
		taken[name] = true
		list = append(list, name)
	}
	return list
}

func freshName(random *rand.Rand, of kind, taken map[string]bool) string {
	for try := 0; ; try++ {
		name := pick(random, onsets) + pick(random, vowels)
		for range try / crowded {
			name += pick(random, clusters) + pick(random, vowels)
		}
		name += pick(random, clusters) + pick(random, endings[of])
		if !taken[name] {
			return name
		}
	}
}

// pieces lists the parts that names have in common.
func pieces() []string {
	var list []string
	combine := func(first, second []string) {
		for _, a := range first {
			for _, b := range second {
				list = append(list, a+b)
			}
		}
	}
	combine(onsets, vowels)
	combine(clusters, vowels)
	for _, of := range endings {
		combine(clusters, of)
	}
	return list
}
