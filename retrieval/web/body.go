package web

import (
	"mime"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
)

// kind is what can be read of a body.
type kind int

const (
	unreadable kind = iota
	plain
	markup
)

// kindOf tells what a media type can be read as.
func kindOf(media string) kind {
	switch {
	case media == "text/html", media == "application/xhtml+xml":
		return markup
	case strings.HasPrefix(media, "text/"), media == "application/json", media == "application/xml",
		strings.HasSuffix(media, "+json"), strings.HasSuffix(media, "+xml") && !strings.HasPrefix(media, "image/"):
		return plain
	}
	return unreadable
}

// mediaType is the media type in a Content-Type header, "" when it says none.
func mediaType(header string) string {
	media, _, err := mime.ParseMediaType(header)
	if err != nil && media == "" {
		media, _, _ = strings.Cut(header, ";")
		media = strings.ToLower(strings.TrimSpace(media))
	}
	return media
}

// bodyText is the text of a body, in valid UTF-8. refused says why there is none, or is "".
func bodyText(body []byte, contentType string) (text, refused string) {
	media := mediaType(contentType)
	found := mediaType(http.DetectContentType(body))
	if media == "" {
		media = found
	}
	how := kindOf(media)
	if how == unreadable {
		return "", unreadableType(media)
	}
	// A file that says by its first bytes what it is, and that it is no text, is none. The guess
	// octet-stream says nothing: it stands for any text with odd bytes in it.
	if found != "application/octet-stream" && kindOf(found) == unreadable {
		return "", unreadableType(found)
	}
	decoded := decode(body, contentType)
	if how == markup {
		return HTMLText(decoded), ""
	}
	return strings.TrimSpace(printable(decoded)), ""
}

func unreadableType(media string) string {
	const longest = 60
	return "this is a file of type " + printable(media[:min(len(media), longest)]) + ", only text can be read"
}

// decode turns a body into UTF-8: from the charset that it states, or the one it looks like. What is
// valid UTF-8 with more than ASCII in it is taken for that, whatever is stated: no other text
// happens to be.
func decode(body []byte, contentType string) string {
	encoding, name, _ := charset.DetermineEncoding(body[:min(len(body), 1024)], contentType)
	if name == "utf-8" || looksLikeUTF8(body) {
		return strings.ToValidUTF8(string(body), "\uFFFD")
	}
	decoded, err := encoding.NewDecoder().Bytes(body)
	if err != nil { // decoders replace what is wrong; the text so far counts
		return strings.ToValidUTF8(string(decoded), "\uFFFD")
	}
	return strings.ToValidUTF8(string(decoded), "\uFFFD")
}

// looksLikeUTF8 does not mind a character that is cut at the end.
func looksLikeUTF8(body []byte) bool {
	ascii := true
	for len(body) > 0 {
		c, size := utf8.DecodeRune(body)
		if c == utf8.RuneError && size <= 1 {
			return !ascii && !utf8.FullRune(body)
		}
		ascii = ascii && size == 1
		body = body[size:]
	}
	return !ascii
}

// printable drops control characters but line breaks and tabs, and makes one line break of CR LF.
func printable(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\r\n", "\n")
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\t':
			return c
		case c == '\r':
			return '\n'
		case unicode.IsControl(c) || c == '\ufeff':
			return -1
		}
		return c
	}, text)
}
