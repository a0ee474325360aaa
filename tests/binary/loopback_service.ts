/** Services on loopback, which the executable serves as any user. */
import { eventually } from "../support/eventually.ts";
import { ask } from "../support/drivers/tcp_peers.ts";

/** A Service address that no other test uses, with a free port. */
export function serviceAddress(): { hostname: string; port: number } {
  const hostname = `127.96.${200 + Deno.pid % 50}.${1 + Math.floor(Math.random() * 250)}`;
  using listener = Deno.listen({ hostname, port: 0 });
  return { hostname, port: listener.addr.port };
}

/** A Service of one port, and a slice with one endpoint on loopback. */
export function objectsOf(
  name: string,
  { protocol, address, endpoint }: {
    protocol: "TCP" | "UDP";
    address: { hostname: string; port: number };
    endpoint: number;
  },
): unknown[] {
  const metadata = { name, labels: { "kubernetes.io/service-name": name } };
  return [
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name },
      spec: { clusterIP: address.hostname, ports: [{ port: address.port, protocol }] },
    },
    {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata,
      addressType: "IPv4",
      endpoints: [{ addresses: ["127.0.0.1"] }],
      ports: [{ port: endpoint, protocol }],
    },
  ];
}

/** The answer through a Service, as soon as there is one. */
export function answerOf(address: { hostname: string; port: number }): Promise<string> {
  return eventually(
    `an answer from ${address.hostname}:${address.port}`,
    () => ask(address).catch(() => undefined),
  );
}
