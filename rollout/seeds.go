package rollout

// SeedKey names one sampled token of a step.
type SeedKey struct {
	Run      uint64 // seed of the run
	Step     int
	Question string // id
	Draw     int    // position of the question within the step
	Member   int    // of the group
	Turn     int    // from 0
	Position int    // among the sampled tokens of the turn, from 0
}

// Seed is the seed of the token's one draw: a hash of all fields and of nothing else, so that it
// does not depend on batches, workers or time. The question's bytes enter by FNV-1a, each number
// by an exclusive-or and one round of SplitMix64's finaliser, a bijection: keys that differ in
// one number never share a seed.
func (k SeedKey) Seed() uint64 {
	hash := uint64(0xcbf29ce484222325)
	for _, b := range []byte(k.Question) {
		hash = (hash ^ uint64(b)) * 0x100000001b3
	}
	for _, number := range []uint64{
		k.Run, uint64(k.Step), uint64(k.Draw), uint64(k.Member), uint64(k.Turn), uint64(k.Position),
	} {
		hash = mix(hash ^ number)
	}
	return hash
}

// mix is one step of SplitMix64 (Steele, Lea and Flood, 2014).
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
