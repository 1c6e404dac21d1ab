// An agent and its callers on the official Go SDK: what others write, without a line of ours.
//
//	stranger agent RPC_PORT REST_PORT GRPC_PORT
//	stranger operations URL TOKEN BINDING VERSION
//	stranger scenarios URL BINDING VERSION
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	grpcv0 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	grpcv1 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func main() {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	modes := map[string]func([]string) error{"agent": serve, "operations": operate, "scenarios": play}
	if len(os.Args) < 2 || modes[os.Args[1]] == nil {
		log.Fatalf("one of agent, operations, scenarios: %v", os.Args[1:])
	}
	if err := modes[os.Args[1]](os.Args[2:]); err != nil {
		log.Fatal(err)
	}
}

// dial reads the card at an address and returns a client for one binding of one version.
func dial(
	ctx context.Context, url, binding, version string, interceptors ...a2aclient.CallInterceptor,
) (*a2aclient.Client, *a2a.AgentCard, error) {
	resolver := agentcard.NewResolver(nil)
	resolver.CardParser = flatCard
	if version == "0.3" {
		resolver.CardParser = legacyCard
	}
	card, err := resolver.Resolve(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	var wanted []*a2a.AgentInterface
	for _, each := range card.SupportedInterfaces {
		if string(each.ProtocolBinding) == binding && strings.HasPrefix(string(each.ProtocolVersion), version) {
			wanted = append(wanted, each)
		}
	}
	if len(wanted) == 0 && version == "0.3" {
		wanted = overlooked(ctx, url, binding)
	}
	if len(wanted) == 0 {
		return nil, nil, fmt.Errorf("the card names no %s of %s", binding, version)
	}
	only := *card
	only.SupportedInterfaces = wanted
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	client, err := a2aclient.NewFromCard(
		ctx, &only,
		grpcv1.WithGRPCTransport(plain),
		grpcv0.WithGRPCTransport(plain),
		a2av0.WithJSONRPCTransport(a2av0.JSONRPCTransportConfig{Client: &http.Client{Transport: counted{}}}),
		a2av0.WithRESTTransport(a2av0.RESTTransportConfig{}),
		a2aclient.WithCallInterceptors(interceptors...),
	)
	return client, card, err
}

// legacyCard reads a card as a reader of 0.3 does, who does not know the members of 1.0.
func legacyCard(body []byte) (*a2a.AgentCard, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	delete(members, "supportedInterfaces")
	delete(members, "securityRequirements")
	old, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	return a2av0.NewAgentCardParser()(old)
}

// requests counts the requests that left over JSON-RPC of 0.3.
var requests atomic.Int64

type counted struct{}

func (counted) RoundTrip(request *http.Request) (*http.Response, error) {
	requests.Add(1)
	return http.DefaultTransport.RoundTrip(request)
}

// overlooked returns the interface of 0.3 that has the address of the card itself, which the reader
// of the SDK skips.
func overlooked(ctx context.Context, url, binding string) []*a2a.AgentInterface {
	var found []*a2a.AgentInterface
	resolver := agentcard.NewResolver(nil)
	resolver.CardParser = func(body []byte) (*a2a.AgentCard, error) {
		var card struct {
			AdditionalInterfaces []struct {
				URL       string
				Transport a2a.TransportProtocol
			}
		}
		err := json.Unmarshal(body, &card)
		for _, each := range card.AdditionalInterfaces {
			if string(each.Transport) == binding {
				found = append(found, &a2a.AgentInterface{
					URL: each.URL, ProtocolBinding: each.Transport, ProtocolVersion: a2av0.Version,
				})
			}
		}
		return &a2a.AgentCard{}, err
	}
	if _, err := resolver.Resolve(ctx, url); err != nil {
		return nil
	}
	return found
}

// flatCard reads a card whose security requirements are as in the .proto, where the scopes of a
// scheme are an object with a `list`. The reader of the SDK expects the list itself.
func flatCard(body []byte) (*a2a.AgentCard, error) {
	var members map[string]any
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	flatten(members)
	flat, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	return agentcard.DefaultCardParser(flat)
}

func flatten(members map[string]any) {
	requirements, _ := members["securityRequirements"].([]any)
	for _, each := range requirements {
		requirement, _ := each.(map[string]any)
		schemes, _ := requirement["schemes"].(map[string]any)
		for name, scopes := range schemes {
			listed, _ := scopes.(map[string]any)
			schemes[name] = listed["list"]
		}
	}
	skills, _ := members["skills"].([]any)
	for _, each := range skills {
		if skill, ok := each.(map[string]any); ok {
			flatten(skill)
		}
	}
}

// textOf joins the text of some parts.
func textOf(parts a2a.ContentParts) string {
	var text strings.Builder
	for _, part := range parts {
		text.WriteString(part.Text())
	}
	return text.String()
}

// taskOf returns what must be a task.
func taskOf(result a2a.SendMessageResult, err error) (*a2a.Task, error) {
	if err != nil {
		return nil, err
	}
	task, ok := result.(*a2a.Task)
	if !ok {
		return nil, fmt.Errorf("%T is not a task", result)
	}
	return task, nil
}

// stateOf spells a state as 0.3 did.
func stateOf(state a2a.TaskState) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(string(state), "TASK_STATE_")), "_", "-")
}
