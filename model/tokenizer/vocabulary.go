package tokenizer

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mempo-train/mempo-train/model/tokenizer/internal/bytealphabet"
)

// maxID bounds token ids, so that a broken file does not ask for all memory.
const maxID = 1<<22 - 1

// vocabulary holds the tokens by id; ids may have holes.
type vocabulary struct {
	raw     []string // the bytes of each token, "" also where there is none
	valid   []bool
	special []bool
	ids     map[string]int32 // of the tokens of the model, by their bytes
	names   map[string]int32 // of the added tokens, and of model tokens not spelled in the byte alphabet
	added   []addedToken
}

// newVocabulary takes the model's tokens, spelled in the byte alphabet, and the added tokens.
func newVocabulary(tokens map[string]int32, added []addedToken) (*vocabulary, error) {
	v := &vocabulary{ids: make(map[string]int32, len(tokens)), names: map[string]int32{}}
	// An empty one is never found in a text, and HuggingFace gives it no id.
	added = slices.DeleteFunc(slices.Clone(added), func(a addedToken) bool { return a.Content == "" })
	if err := v.grow(tokens, added); err != nil {
		return nil, err
	}
	for _, spelled := range slices.Sorted(maps.Keys(tokens)) {
		id := tokens[spelled]
		if v.valid[id] {
			return nil, fmt.Errorf("model.vocab gives id %d to %q and to another token", id, spelled)
		}
		raw, ok := bytealphabet.Read(spelled)
		if ok {
			v.ids[raw] = id
		} else {
			raw = spelled
			v.names[spelled] = id
		}
		v.raw[id], v.valid[id] = raw, true
	}
	next := int32(len(tokens))
	for _, a := range added {
		if err := v.add(a, tokens, next); err != nil {
			return nil, err
		}
		next = max(next, a.ID+1)
	}
	return v, nil
}

// grow makes room for all ids.
func (v *vocabulary) grow(tokens map[string]int32, added []addedToken) error {
	largest := int32(0)
	check := func(id int32, token string) error {
		if id < 0 || id > maxID {
			return fmt.Errorf("token %q has id %d, but ids go from 0 to %d", token, id, maxID)
		}
		largest = max(largest, id)
		return nil
	}
	for token, id := range tokens {
		if err := check(id, token); err != nil {
			return err
		}
	}
	for _, a := range added {
		if err := check(a.ID, a.Content); err != nil {
			return err
		}
	}
	v.raw = make([]string, largest+1)
	v.valid = make([]bool, largest+1)
	v.special = make([]bool, largest+1)
	return nil
}

// add enters an added token. One that is not a token of the model too must have the next free id:
// HuggingFace numbers them so, whatever the file says.
func (v *vocabulary) add(a addedToken, tokens map[string]int32, next int32) error {
	known, ok := v.names[a.Content]
	if !ok {
		known, ok = tokens[a.Content]
	}
	switch {
	case ok && known != a.ID:
		return fmt.Errorf("added token %q has id %d, but also id %d", a.Content, a.ID, known)
	case !ok && v.valid[a.ID]:
		return fmt.Errorf("added token %q has id %d, which is that of %q", a.Content, a.ID, v.raw[a.ID])
	case !ok && a.ID != next:
		return fmt.Errorf("added token %q has id %d, but the next free id is %d: ids must have no holes", a.Content, a.ID, next)
	}
	v.raw[a.ID], v.valid[a.ID] = a.Content, true
	v.special[a.ID] = v.special[a.ID] || a.Special
	v.names[a.Content] = a.ID
	v.added = append(v.added, a)
	return nil
}

// addFromConfig joins the added tokens of tokenizer_config.json, which must agree with those of
// tokenizer.json, to the latter.
func addFromConfig(added []addedToken, config map[int32]addedToken) ([]addedToken, error) {
	ids := make(map[string]int32, len(added))
	for _, a := range added {
		ids[a.Content] = a.ID
	}
	for _, id := range slices.Sorted(maps.Keys(config)) {
		a := config[id]
		a.ID = id
		known, ok := ids[a.Content]
		if ok && known != id {
			return nil, fmt.Errorf("token %q has id %d in tokenizer.json, but id %d in tokenizer_config.json", a.Content, known, id)
		}
		if !ok {
			added = append(added, a)
		}
	}
	return added, nil
}

// token gives the bytes of a token; ok is false for an id that has none.
func (v *vocabulary) token(id int32) (raw string, ok bool) {
	if id < 0 || int(id) >= len(v.raw) {
		return "", false
	}
	return v.raw[id], v.valid[id]
}

// newMerger builds the merge table. tokens are spelled in the byte alphabet, as the merges are.
func newMerger(tokens map[string]int32, ids map[string]int32, merges mergeList) (*merger, error) {
	m := &merger{pairs: newPairTable(len(merges))}
	for b := range m.byteIDs {
		id, ok := ids[string([]byte{byte(b)})]
		if !ok {
			id = -1
		}
		m.byteIDs[b] = id
	}
	for rank, p := range merges {
		var of [3]int32 // of the two parts and of the whole
		for i, token := range [3]string{p[0], p[1], p[0] + p[1]} {
			id, ok := tokens[token]
			if !ok {
				return nil, fmt.Errorf("model.merges number %d is %q: token %q is not in model.vocab",
					rank, p, token)
			}
			of[i] = id
		}
		m.pairs.set(of[0], of[1], pairMerge{uint32(rank), of[2]})
	}
	return m, nil
}
