// Verifies deliveries of the hub (docs/receivers/README.md). Needs nothing but the standard library.
package main

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"
)

const tolerance = 5 * time.Minute

// Verify says whether body, the bytes as they came, was signed with one of secrets a moment ago.
// signatures are all header lines: request.Header.Values("X-Webhook-Signature").
func Verify(secrets []string, timestamp string, signatures []string, body []byte) bool {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > tolerance {
		return false
	}
	good := false
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte("v1:" + timestamp + "."))
		mac.Write(body)
		expected := "v1,sha256=" + hex.EncodeToString(mac.Sum(nil))
		for _, signature := range signatures {
			if hmac.Equal([]byte(expected), []byte(signature)) {
				good = true
			}
		}
	}
	return good
}

// For the hub's own tests: a request a line in, a verdict a line out.
func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var r struct {
			Secrets    []string
			Timestamp  string
			Signatures []string
			Body       []byte `json:"body_base64"`
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		if Verify(r.Secrets, r.Timestamp, r.Signatures, r.Body) {
			fmt.Println("ok")
		} else {
			fmt.Println("bad")
		}
	}
}
