// An agent that speaks as the Go agents of the project that IAT came from: flat messages at /a2a,
// `execute_task` with `content`, no HELO, no pulse, no authentication, HTTP/1.1. It prints its
// address.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"
)

type trace struct {
	TraceID  string `json:"traceId"`
	SpanID   string `json:"spanId"`
	ParentID string `json:"parentId"`
}

type message struct {
	ID        string          `json:"id"`
	From      string          `json:"from"`
	To        string          `json:"to"`
	Type      string          `json:"type"`
	Action    string          `json:"action"`
	Payload   json.RawMessage `json:"payload"`
	Trace     trace           `json:"trace"`
	Metadata  map[string]any  `json:"metadata"`
	Timestamp int64           `json:"timestamp"`
	StreamID  string          `json:"streamId,omitempty"`
}

func handle(said message) message {
	told := message{ID: said.ID, From: said.To, To: said.From, Type: "response", Timestamp: time.Now().UnixMilli()}
	payload := map[string]any{}
	switch {
	case said.Type != "request":
		told.Action = "ignored"
	case said.Action == "execute_task":
		var task struct {
			Content string `json:"content"`
		}
		told.Action = "task_result"
		if err := json.Unmarshal(said.Payload, &task); err != nil {
			payload["error"] = err.Error()
		} else {
			payload["result"] = strings.ToUpper(task.Content)
		}
	default:
		told.Action, payload["error"] = "error", "unknown action: "+said.Action
	}
	told.Payload, _ = json.Marshal(payload)
	return told
}

func main() {
	http.HandleFunc("/health", func(answer http.ResponseWriter, _ *http.Request) { fmt.Fprint(answer, "ok") })
	http.HandleFunc("/a2a", func(answer http.ResponseWriter, request *http.Request) {
		if request.Method != http.MethodPost {
			http.Error(answer, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		var said message
		if err := json.NewDecoder(request.Body).Decode(&said); err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		answer.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(answer).Encode(handle(said))
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}
