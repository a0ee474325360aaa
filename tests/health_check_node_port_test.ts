/**
 * A health check node port from the Service to the load balancer: kube-relay in this process reads
 * manifests from a folder and answers on the port, until it ends.
 */
import { assertEquals } from "@std/assert";
import { BACKENDS } from "../backends/mod.ts";
import type { RunConfiguration } from "../lib/app/dependencies.ts";
import { runProxy } from "../lib/app/run/run_proxy.ts";
import { createLogger } from "../lib/log/create_logger.ts";
import { IP_FAMILIES } from "../lib/net/ip_address.ts";
import { systemCommandRunner } from "../lib/os/command_runner.ts";
import { OTHER_NODE, THIS_NODE } from "./support/builders/address_plan.ts";
import { testEndpointSlice, testService } from "./support/builders/builders.ts";
import { eventually } from "./support/eventually.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";
import { unusedPort } from "./support/drivers/unused_port.ts";
import { testDependencies } from "./support/fakes/test_dependencies.ts";
import { configurationOf, ownFlags } from "./support/drivers/own_flags.ts";

const DEPENDENCIES = testDependencies({
  ...{ commands: systemCommandRunner, backends: BACKENDS },
  process: { pid: Deno.pid, uid: Deno.uid() ?? undefined, hostname: THIS_NODE },
});

/** A LoadBalancer Service whose endpoints are on these nodes. */
function manifest(
  healthCheckNodePort: number,
  nodes: readonly string[],
  externalTrafficPolicy: "Cluster" | "Local" = "Local",
): string {
  const service = testService("web", {
    type: "LoadBalancer",
    externalTrafficPolicy,
    ...(externalTrafficPolicy === "Local" && { healthCheckNodePort }),
    clusterIP: "127.46.0.1",
    ports: [{ name: "a", port: unusedPort() }],
  });
  const slice = testEndpointSlice("web", {
    endpoints: nodes.map((nodeName, index) => ({ addresses: [`127.0.1.${index + 1}`], nodeName })),
    ports: [{ name: "a", protocol: "TCP", port: 8080 }],
  });
  return manifestText([
    ...rawObjects("Service", service),
    ...rawObjects("EndpointSlice", slice),
  ]);
}

/** Serves the manifests of a folder, on loopback alone. */
async function configurationIn(folder: string): Promise<RunConfiguration> {
  const configuration = await configurationOf([
    `--manifests=${folder}/manifests`,
    "--address-mode=none",
    "--nodeport-addresses=127.0.0.0/8",
    `--hostname-override=${THIS_NODE}`,
    ...ownFlags(folder),
  ], { uid: Deno.uid() ?? undefined });
  return { ...configuration, mode: "userspace", families: IP_FAMILIES };
}

/** The answer's code and count; `undefined` while the port is closed. */
async function ask(port: number): Promise<string | undefined> {
  const answer = await fetch(`http://127.0.0.1:${port}/`).catch(() => undefined);
  if (answer === undefined) return undefined;
  const { localEndpoints, serviceProxyHealthy } = await answer.json();
  return `${answer.status}: ${localEndpoints}, ${serviceProxyHealthy}`;
}

Deno.test("kube-relay answers a health check node port according to the manifests, until it ends", async () => {
  const folder = await Deno.makeTempDir();
  const port = unusedPort();
  const file = `${folder}/manifests/web.yaml`;
  await Deno.mkdir(`${folder}/manifests`);
  const controller = new AbortController();
  const logger = createLogger({ format: "text", verbosity: 0, sink: () => {} });
  const steps: readonly (readonly [
    nodes: readonly string[],
    expect: string | undefined,
    policy?: "Cluster",
  ])[] = [
    [[THIS_NODE, THIS_NODE, OTHER_NODE], "200: 2, true"],
    [[OTHER_NODE], "503: 0, true"],
    [[THIS_NODE], undefined, "Cluster"],
    [[THIS_NODE], "200: 1, true"],
  ];
  await Deno.writeTextFile(file, manifest(port, steps[0]![0]));
  const running = runProxy(
    { ...DEPENDENCIES, logger },
    await configurationIn(folder),
    controller.signal,
  );
  try {
    for (const [nodes, expect, policy] of steps) {
      await Deno.writeTextFile(file, manifest(port, nodes, policy));
      const what = `${expect} for endpoints on ${nodes}`;
      await eventually(what, async () => await ask(port) === expect);
    }
  } finally {
    controller.abort();
    await running;
  }
  assertEquals(await ask(port), undefined);
  await Deno.remove(folder, { recursive: true });
});
