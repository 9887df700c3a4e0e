package world

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
)

// stream is the generator for one purpose: a function of its name and of the numbers that tell it
// from others of that name, so that a setting of one part changes nothing in another.
func stream(name string, numbers ...uint64) *rand.Rand {
	label := []byte(name)
	for _, number := range numbers {
		label = binary.LittleEndian.AppendUint64(label, number)
	}
	return rand.New(rand.NewChaCha8(sha256.Sum256(label)))
}

// pick draws one of a list that is not empty.
func pick[T any](random *rand.Rand, list []T) T { return list[random.IntN(len(list))] }
