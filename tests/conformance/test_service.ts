/** A Service as it is written to an API server. */
import type { RawObject } from "./server.ts";

/** The Service `default/NAME` with one TCP port. */
export function testService(name: string, clusterIP = "10.0.0.1"): RawObject {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name, namespace: "default" },
    spec: { type: "ClusterIP", clusterIP, ports: [{ protocol: "TCP", port: 80 }] },
  };
}
