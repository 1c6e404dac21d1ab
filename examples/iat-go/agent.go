// A sub-agent in Go, without Dragoman and with nothing but the standard library: it registers at
// the host over HTTP with its own address, and the host calls it back.
//
//	IAT_SECRET=... go run agent.go http://127.0.0.1:8420/iat
//
// It thinks, streams chunks, calls the host's tool `size`, asks for approval, and is done. Both
// sides prove that they have the secret, by signing; nobody sends it.
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

type object = map[string]any

type header struct {
	MsgID     string `json:"msg_id"`
	ParentID  string `json:"parent_id"`
	Type      string `json:"type"`
	From      string `json:"from"`
	To        string `json:"to"`
	Timestamp int64  `json:"timestamp"`
}

type metadata struct {
	TraceID   string `json:"trace_id"`
	TTL       int    `json:"ttl"`
	AuthToken string `json:"auth_token,omitempty"`
}

type envelope struct {
	Header   header   `json:"header"`
	Metadata metadata `json:"metadata"`
	Payload  object   `json:"payload"`
}

var (
	me     = or(os.Getenv("IAT_AGENT"), "go-agent")
	secret = os.Getenv("IAT_SECRET")

	lock    sync.Mutex
	tokens  = map[string]string{}      // session tokens we gave, and to whom
	waiting = map[string]chan object{} // our questions, and who waits for the answer
	used    = map[string]time.Time{}   // signatures we have seen: each is good once
)

const window = 5 * time.Minute

func or(given, otherwise string) string {
	if given != "" {
		return given
	}
	return otherwise
}

func newID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	return hex.EncodeToString(id)
}

func say(kind, parent, to string, payload object) envelope {
	head := header{newID(), parent, kind, me, to, time.Now().Unix()}
	return envelope{head, metadata{TTL: 3}, payload}
}

func sign(stamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(stamp + "."))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// Whether a message is signed with the secret: for us, not long ago, and for the first time.
func proved(said envelope, headers http.Header, body []byte) bool {
	stamp, signature := headers.Get("X-IAT-Timestamp"), headers.Get("X-IAT-Signature")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || secret == "" || said.Header.To != me {
		return false
	}
	if age := time.Since(time.Unix(seconds, 0)); age < -window || age > window {
		return false
	}
	if !hmac.Equal([]byte(signature), []byte(sign(stamp, body))) {
		return false
	}
	lock.Lock()
	defer lock.Unlock()
	for each, when := range used {
		if time.Since(when) > 2*window {
			delete(used, each)
		}
	}
	_, again := used[signature]
	used[signature] = time.Now()
	return !again
}

// Who may speak: HELO is signed, everything else has the token that was the answer to it.
func known(said envelope, headers http.Header, body []byte) bool {
	if said.Payload["action"] == "HELO" {
		return proved(said, headers, body)
	}
	token := strings.TrimPrefix(said.Metadata.AuthToken, "bearer ")
	lock.Lock()
	defer lock.Unlock()
	who, ok := tokens[token]
	return ok && who == said.Header.From
}

func serve(answer http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodPost {
		http.Error(answer, "POST an envelope", http.StatusMethodNotAllowed)
		return
	}
	var said envelope
	body, err := io.ReadAll(http.MaxBytesReader(answer, request.Body, 1<<20))
	if err != nil || json.Unmarshal(body, &said) != nil {
		http.Error(answer, "bad envelope", http.StatusBadRequest)
		return
	}
	parent, host := said.Header.MsgID, said.Header.From
	if !known(said, request.Header, body) {
		answer.WriteHeader(http.StatusUnauthorized)
		fault := object{"code": "unauthorized", "message": "Credentials are missing or wrong."}
		_ = json.NewEncoder(answer).Encode(say("response", parent, host, object{"action": "error", "error": fault}))
		return
	}
	if said.Header.Type == "response" { // the answer to a question of ours, once
		lock.Lock()
		wait, ok := waiting[said.Header.ParentID]
		delete(waiting, said.Header.ParentID)
		lock.Unlock()
		if ok {
			wait <- said.Payload
		}
		answer.WriteHeader(http.StatusNoContent)
		return
	}
	switch said.Payload["action"] {
	case "HELO":
		token := newID()
		lock.Lock()
		tokens[token] = host
		lock.Unlock()
		reply(answer, say("response", parent, host, object{"action": "HELO", "agent_id": me, "tools": []any{}, "session_token": token}))
	case "pulse":
		reply(answer, say("response", parent, host, object{"action": "pulse", "ok": true}))
	case "execute":
		execute(answer, said)
	default:
		fault := object{"code": "unknown_action", "message": "There is no such action"}
		reply(answer, say("response", parent, host, object{"action": "error", "error": fault}))
	}
}

func reply(answer http.ResponseWriter, told envelope) {
	answer.Header().Set("content-type", "application/json")
	_ = json.NewEncoder(answer).Encode(told)
}

func execute(answer http.ResponseWriter, said envelope) {
	parent, host := said.Header.MsgID, said.Header.From
	query, _ := said.Payload["query"].(string)
	answer.Header().Set("content-type", "text/event-stream")
	tell := func(kind string, payload object) string {
		told := say(kind, parent, host, payload)
		body, _ := json.Marshal(told)
		fmt.Fprintf(answer, "event: %s\ndata: %s\n\n", kind, body)
		answer.(http.Flusher).Flush()
		return told.Header.MsgID
	}
	ask := func(payload object) object {
		told := say("request", parent, host, payload)
		wait := make(chan object, 1)
		lock.Lock()
		waiting[told.Header.MsgID] = wait // before it is asked, or the answer could be too quick
		lock.Unlock()
		body, _ := json.Marshal(told)
		fmt.Fprintf(answer, "event: request\ndata: %s\n\n", body)
		answer.(http.Flusher).Flush()
		for {
			select {
			case found := <-wait:
				return found
			case <-time.After(10 * time.Second):
				fmt.Fprint(answer, ": waiting\n")
				answer.(http.Flusher).Flush()
			}
		}
	}
	tell("notification", object{"action": "think", "thought_text": "How large is " + query + "?"})
	found := ask(object{"action": "call_tool", "tool_name": "size", "arguments": object{"path": query}})
	if found["error"] != nil {
		tell("response", object{"action": "done", "error": found["error"]})
		return
	}
	for index, text := range []string{query, " has ", fmt.Sprintf("%v bytes", found["result"])} {
		tell("chunk", object{"index": index, "text": text})
	}
	tell("notification", object{"action": "log", "level": "info", "message": "measured"})
	decided := ask(object{"action": "require_approval", "approval_id": newID(), "operation": "Delete it?", "risk": "high", "details": object{"path": query}})
	summary := "kept" // anything but a clear yes is a no
	if approved, ok := decided["approved"].(bool); ok && approved {
		summary = "deleted"
	}
	tell("chunk", object{"index": 3, "text": ", " + summary})
	tell("response", object{"action": "done", "result_summary": summary, "usage_stats": object{"tokens": 7}})
}

// What is signed names whom it is for. We do not know the host's name at first; its refusal tells.
func register(host, name, endpoint string) error {
	told := say("request", "", name, object{
		"action": "register", "agent_id": me, "name": "Go sub-agent", "version": "1.0.0",
		"endpoint": endpoint, "actions": []string{"execute", "pulse", "HELO"},
		"tools": []object{{"name": "measure", "description": "Measures a path",
			"parameters": object{"type": "object"}, "returns": object{"type": "string"}}},
	})
	body, _ := json.Marshal(told)
	request, err := http.NewRequest(http.MethodPost, host, bytes.NewReader(body))
	if err != nil {
		return err
	}
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-IAT-Timestamp", stamp)
	request.Header.Set("X-IAT-Signature", sign(stamp, body))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusUnauthorized && name == "" {
		var refusal envelope
		if json.NewDecoder(answer.Body).Decode(&refusal) == nil && refusal.Header.From != "" {
			return register(host, refusal.Header.From, endpoint)
		}
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the host refuses us: %s", answer.Status)
	}
	return nil
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: agent http://HOST:PORT/iat")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/iat", serve)
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true) // IAT's primary transport
	go func() { log.Fatal(server.Serve(listener)) }()
	endpoint := fmt.Sprintf("http://%s/iat", listener.Addr())
	for pause := 250 * time.Millisecond; ; pause = min(pause*2, 10*time.Second) {
		if err := register(os.Args[1], "", endpoint); err == nil {
			break
		} else {
			log.Print(err)
		}
		time.Sleep(pause)
	}
	fmt.Println("registered as", me)
	for { // a host that started again has forgotten us
		time.Sleep(30 * time.Second)
		if err := register(os.Args[1], "", endpoint); err != nil {
			log.Print(err)
		}
	}
}
