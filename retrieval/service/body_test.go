package service

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
)

// untouched is a body that nobody should wait for.
type untouched struct{ t *testing.T }

func (b untouched) Read([]byte) (int, error) {
	b.t.Error("the body is read")
	return 0, errors.New("not for reading")
}

func TestABodyThatIsAnnouncedAsTooLongIsNotWaitedFor(t *testing.T) {
	request := httptest.NewRequest("POST", "/retrieve", untouched{t})
	request.ContentLength = 99_999_999_999_999
	w := httptest.NewRecorder()
	ready(fakeSearch()).ServeHTTP(w, request)
	if w.Code != 413 || !strings.Contains(w.Body.String(), "the body has more than 2000 bytes") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
