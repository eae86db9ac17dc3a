//go:build deps

package suites

// The tests of the modules import these and the modules' packages do not. So `go mod tidy` keeps them.
import (
	_ "github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	_ "github.com/Azure/azure-sdk-for-go/sdk/internal/recording"
	_ "github.com/Azure/azure-sdk-for-go/sdk/internal/test/credential"
	_ "github.com/coder/websocket"
	_ "github.com/golang/mock/gomock"
	_ "github.com/joho/godotenv"
	_ "github.com/stretchr/testify/require"
	_ "gocloud.dev/pubsub/azuresb"
	_ "gocloud.dev/pubsub/drivertest"
)
