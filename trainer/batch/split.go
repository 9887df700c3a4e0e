package batch

// Part is a half-open range of rows.
type Part struct{ Start, End int }

// Split cuts rows of given lengths, in their order, into parts of at most budget tokens; a longer
// row has a part to itself.
func Split(lengths []int, budget int) []Part {
	var parts []Part
	tokens := 0
	for k, length := range lengths {
		if k == 0 || tokens+length > budget {
			parts = append(parts, Part{k, k})
			tokens = 0
		}
		tokens += length
		parts[len(parts)-1].End = k + 1
	}
	return parts
}
