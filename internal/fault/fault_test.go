package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
)

func TestCode(t *testing.T) {
	plain := errors.New("broken")
	full := &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	tests := []struct {
		err  error
		want int
	}{
		{nil, 0},
		{Usage(nil), 0},
		{Environment(nil), 0},
		{plain, 1},
		{Usage(plain), 2},
		{Environment(plain), 3},
		{fmt.Errorf("step 3: %w", Usage(plain)), 2},
		{Usage(Environment(plain)), 2},
		{errors.Join(plain, Environment(plain)), 3},
		{fmt.Errorf("cannot save: %w", full), 3},
		{&fs.PathError{Op: "mkdir", Path: "x", Err: syscall.EACCES}, 3},
		{Usage(full), 2},
		{fs.ErrNotExist, 1},
	}
	for _, test := range tests {
		if got := Code(test.err); got != test.want {
			t.Errorf("%v: code %d, want %d", test.err, got, test.want)
		}
	}
}

func TestMarkKeepsTextAndChain(t *testing.T) {
	plain := errors.New("broken")
	marked := Usage(fmt.Errorf("a: %w", plain))
	if marked.Error() != "a: broken" || !errors.Is(marked, plain) {
		t.Errorf("got %q", marked)
	}
}
