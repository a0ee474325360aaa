/**
 * A healthy node says nothing: kube-relay in this process, on a clock that runs ahead, serves real
 * sockets while nothing changes, and its log stays as it was.
 */
import { assert, assertEquals } from "@std/assert";
import { BACKENDS } from "../backends/mod.ts";
import type { ProgramDependencies } from "../lib/app/run/run_tools.ts";
import { runProxy } from "../lib/app/run/run_proxy.ts";
import { createLogger } from "../lib/log/create_logger.ts";
import { IP_FAMILIES } from "../lib/net/ip_address.ts";
import { systemCommandRunner } from "../lib/os/command_runner.ts";
import { THIS_NODE } from "./support/builders/address_plan.ts";
import { testEndpointSlice, testNode, testService } from "./support/builders/builders.ts";
import { FakeApiServer } from "./support/fakes/fake_api_server.ts";
import { FakeClock } from "./support/fakes/fake_clock.ts";
import { writeKubeconfig } from "./support/builders/kubeconfig_file.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";
import { unusedPort } from "./support/drivers/unused_port.ts";
import { testDependencies } from "./support/fakes/test_dependencies.ts";
import { configurationOf, ownFlags } from "./support/drivers/own_flags.ts";

/** The step of the clock. Input and output take real time, which passes between two steps. */
const STEP_MS = 100;
/** A busy machine answers later: after 10 s of fake time, slow files are reported. */
const REAL_STEP_MS = 5;
const QUIET_MINUTE_MS = 60_000;

/** Two Services, one with an endpoint and one without, all of it on loopback. */
function objects(port: number) {
  const ports = [{ name: "a", port }];
  return [
    ...rawObjects("Node", testNode()),
    ...rawObjects(
      "Service",
      testService("web", { clusterIP: "127.45.0.1", ports }),
      testService("empty", { clusterIP: "127.45.0.2", ports }),
    ),
    ...rawObjects(
      "EndpointSlice",
      testEndpointSlice("web", {
        endpoints: ["127.0.0.1"],
        ports: [{ name: "a", protocol: "TCP", port: 8080 }],
      }),
    ),
  ];
}

function createDependencies(clock: FakeClock): ProgramDependencies {
  return testDependencies({
    ...{ clock, commands: systemCommandRunner, backends: BACKENDS },
    process: { pid: Deno.pid, uid: Deno.uid() ?? undefined, hostname: THIS_NODE },
  });
}

/** Lets fake time pass until it is so, with real time for sockets and files after each step. */
async function advanceUntil(clock: FakeClock, isSo: () => boolean): Promise<void> {
  const deadline = performance.now() + 120_000;
  while (!isSo()) {
    assert(performance.now() < deadline, "it never came to that");
    await clock.advance(STEP_MS);
    await new Promise((resolve) => setTimeout(resolve, REAL_STEP_MS));
  }
}

async function withRelay(
  { source, folder }: { readonly source: string; readonly folder: string },
  test: (relay: { readonly clock: FakeClock; readonly lines: string[] }) => Promise<void>,
): Promise<void> {
  const clock = new FakeClock();
  const lines: string[] = [];
  const logger = createLogger({
    format: "text",
    verbosity: 0,
    clock,
    sink: (line) => lines.push(line),
  });
  const configuration = await configurationOf([
    source,
    "--proxy-mode=userspace",
    "--address-mode=none",
    `--hostname-override=${THIS_NODE}`,
    ...ownFlags(folder),
  ], { uid: Deno.uid() ?? undefined });
  const controller = new AbortController();
  const running = runProxy(
    { ...createDependencies(clock), logger },
    { ...configuration, mode: "userspace", families: IP_FAMILIES },
    controller.signal,
  );
  try {
    await advanceUntil(clock, () => lines.some((line) => line.includes("phase=serving")));
    await test({ clock, lines });
  } finally {
    controller.abort();
    let ended = false;
    running.finally(() => ended = true).catch(() => {});
    await advanceUntil(clock, () => ended);
    await running;
  }
}

async function staysQuiet(
  { clock, lines }: { readonly clock: FakeClock; readonly lines: string[] },
): Promise<void> {
  const before = lines.length;
  const end = clock.now() + QUIET_MINUTE_MS;
  await advanceUntil(clock, () => clock.now() >= end);
  assertEquals(lines.slice(before), []);
}

Deno.test("kube-relay prints nothing in a quiet minute, fed by manifests", async () => {
  const folder = await Deno.makeTempDir();
  await Deno.mkdir(`${folder}/manifests`);
  const file = `${folder}/manifests/objects.yaml`;
  await Deno.writeTextFile(file, manifestText(objects(unusedPort())));
  await withRelay({ source: `--manifests=${folder}/manifests`, folder }, async (relay) => {
    await staysQuiet(relay);
    await Deno.writeTextFile(file, "spec: [");
    const before = relay.lines.length;
    await advanceUntil(relay.clock, () => relay.lines.length > before);
  });
  await Deno.remove(folder, { recursive: true });
});

Deno.test("kube-relay prints nothing in a quiet minute, fed by an API server", async () => {
  const folder = await Deno.makeTempDir();
  await using server = await FakeApiServer.start();
  for (const object of objects(unusedPort())) server.store.create(object);
  const { url, ca } = server;
  await writeKubeconfig(`${folder}/config`, {
    server: url,
    ca,
    user: { token: server.rotateToken() },
  });
  await withRelay({ source: `--kubeconfig=${folder}/config`, folder }, async (relay) => {
    await staysQuiet(relay);
    assert(server.openWatches > 0, "it follows the server");
  });
  await Deno.remove(folder, { recursive: true });
});
