// Package fault marks errors with the exit code that the program ends with. An error keeps its
// text; the outermost mark counts.
package fault

import (
	"errors"
	"syscall"
)

// The exit codes of the program.
const (
	CodeOther       = 1 // anything without a mark
	CodeUsage       = 2 // wrong usage, config, model folder or data
	CodeEnvironment = 3 // libtorch, driver, device memory, disk, a service that is not reachable
)

// Error is an error with an exit code.
type Error struct {
	Code int
	Err  error
}

// Error is the text of the marked error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap is the marked error.
func (e *Error) Unwrap() error { return e.Err }

// Usage marks err as a fault of what the user gave; nil stays nil.
func Usage(err error) error { return mark(CodeUsage, err) }

// Environment marks err as a fault of the machine or a service; nil stays nil.
func Environment(err error) error { return mark(CodeEnvironment, err) }

func mark(code int, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Err: err}
}

// Code is the exit code for err: 0 for nil, that of its outermost mark, CodeEnvironment for an error
// of the operating system that nobody took for the user's, such as a full disk, else CodeOther.
func Code(err error) int {
	var marked *Error
	var system syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &marked):
		return marked.Code
	case errors.As(err, &system):
		return CodeEnvironment
	}
	return CodeOther
}
