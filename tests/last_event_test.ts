/**
 * Tests that the event with the reason of an exit is at the API server when the process has ended.
 */
import { assertEquals, assertRejects } from "@std/assert";
import { BACKENDS } from "../backends/mod.ts";
import { runProxy } from "../lib/app/run/run_proxy.ts";
import { createLogger } from "../lib/log/create_logger.ts";
import { systemCommandRunner } from "../lib/os/command_runner.ts";
import { THIS_NODE } from "./support/builders/address_plan.ts";
import { FakeApiServer } from "./support/fakes/fake_api_server.ts";
import { collectionOf } from "./support/fakes/fake_api_store.ts";
import { writeKubeconfig } from "./support/builders/kubeconfig_file.ts";
import { testDependencies } from "./support/fakes/test_dependencies.ts";
import { configurationOf, ownFlags } from "./support/drivers/own_flags.ts";

const EVENTS = collectionOf({ kind: "Event", apiVersion: "events.k8s.io/v1" });

/** Runs kube-relay against a server until it ends; the healthz port is taken. */
async function runInto(port: number, { server, folder }: {
  readonly server: FakeApiServer;
  readonly folder: string;
}): Promise<void> {
  const kubeconfig = `${folder}/kubeconfig`;
  const user = { token: server.rotateToken() };
  await writeKubeconfig(kubeconfig, { server: server.url, ca: server.ca, user });
  const uid = Deno.uid() ?? undefined;
  const configuration = await configurationOf([
    `--kubeconfig=${kubeconfig}`,
    "--bind-address-hard-fail",
    "--address-mode=none",
    `--hostname-override=${THIS_NODE}`,
    ...ownFlags(folder, { healthPort: port }),
  ], { uid });
  await runProxy(
    {
      ...testDependencies({ commands: systemCommandRunner, backends: BACKENDS, process: { uid } }),
      logger: createLogger({ format: "text", verbosity: 0, sink: () => {} }),
    },
    { ...configuration, mode: "userspace", families: ["IPv4"] },
    new AbortController().signal,
  );
}

Deno.test("runProxy() that ends for a port that is taken has written an event about it for the Node", async () => {
  using taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  await using server = await FakeApiServer.start();
  const folder = await Deno.makeTempDir();
  try {
    const { port } = taken.addr;
    await assertRejects(() => runInto(port, { server, folder }), Error, `127.0.0.1:${port}`);
    const warning = server.store.list(EVENTS).find(({ type }) => type === "Warning");
    assertEquals<unknown>(
      [warning?.reason, warning?.regarding],
      ["FailedToStartProxierHealthcheck", { apiVersion: "v1", kind: "Node", name: THIS_NODE }],
    );
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
