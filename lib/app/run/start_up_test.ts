import { assert, assertEquals } from "@std/assert";
import { testNode } from "../../../tests/support/builders/builders.ts";
import { StaticAuth } from "../../../tests/support/builders/static_auth.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { FakeApiServer } from "../../../tests/support/fakes/fake_api_server.ts";
import { collectionOf } from "../../../tests/support/fakes/fake_api_store.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { TaskGroup } from "../../engine/task_group.ts";
import { KubeClient } from "../../kube/client.ts";
import { openTransport } from "../../kube/api_transport.ts";
import { systemClock } from "../../os/clock.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import { setOomScore, StartUp } from "./start_up.ts";
import { TEST_PROCESS } from "../../../tests/support/fakes/test_dependencies.ts";
import { configurationOf } from "../../../tests/support/drivers/own_flags.ts";

const FORWARD = { name: "net.ipv4.ip_forward", value: "1", purpose: "forward packets" };
const BACKEND = { family: "IPv4" as const, usesConntrack: false, hostSettings: () => [FORWARD] };
const EVENTS = collectionOf({ kind: "Event", apiVersion: "events.k8s.io/v1" });

interface Stage {
  readonly startUp: StartUp;
  readonly logger: MemoryLogger;
  readonly commands: FakeCommandRunner;
  readonly tasks: TaskGroup;
}

async function withStartUp(
  { mode, argv }: { readonly mode: BackendMode; readonly argv: readonly string[] },
  run: (stage: Stage) => Promise<void>,
): Promise<void> {
  const configuration = await configurationOf([
    ...[...argv, "--control-socket=/run/test/control.sock"],
  ]);
  const logger = new MemoryLogger();
  const commands = new FakeCommandRunner()
    .on("choom -n -999 -p 42", { code: 1, stderr: "choom: Permission denied\n" });
  const startUp = new StartUp(
    {
      clock: systemClock,
      commands,
      logger,
      random: Math.random,
      process: { ...TEST_PROCESS, pid: 42 },
    },
    { ...configuration, mode, families: ["IPv4", "IPv6"] },
    "node-a",
  );
  const tasks = new TaskGroup(new AbortController().signal);
  await run({ startUp, logger, commands, tasks });
  tasks.stop();
  await tasks.ended();
}

const MANIFESTS = ["--manifests=examples"];
const KUBECONFIG = ["--kubeconfig=/etc/kube-relay/kubeconfig"];

Deno.test("StartUp.prepare() applies the settings of the mode, and keeps the results", () =>
  withStartUp({ mode: "iptables", argv: MANIFESTS }, async ({ startUp, commands }) => {
    commands.on("sysctl net", { stdout: "net.ipv4.ip_forward = 0\n" })
      .on("sysctl -w", { code: 1, stderr: "sysctl: permission denied on key\n" });
    assertEquals(startUp.hostSettings, []);
    await startUp.prepare([BACKEND, BACKEND]);
    assertEquals(startUp.hostSettings.map(({ state }) => state), ["refused"]);
  }));

Deno.test("StartUp is quiet for a plain user without a cluster, if the OOM score is refused", () =>
  withStartUp({ mode: "userspace", argv: MANIFESTS }, async ({ startUp, logger, tasks }) => {
    await startUp.prepare([{ family: "IPv4", usesConntrack: false, hostSettings: () => [] }]);
    startUp.start(tasks, undefined);
    startUp.events.record({} as never);
    await eventually(
      "the OOM score was refused",
      () => logger.lines.some(({ message }) => message.startsWith("Cannot set OOM score")),
    );
    assert(logger.lines.every(({ level }) => level === "info" || level === "verbose"));
  }));

for (
  const [mode, reasons] of [
    ["userspace", ["Starting"]],
    ["ipvs", ["IPVSDeprecation", "Starting"]],
  ] as const
) {
  Deno.test(`StartUp writes an event of the start for the Node in mode ${mode}`, () =>
    withStartUp({ mode, argv: KUBECONFIG }, async ({ startUp, tasks }) => {
      await using fake = await FakeApiServer.start();
      const auth = new StaticAuth(fake.url, { ca: fake.ca });
      await using transport = openTransport(systemClock, auth);
      startUp.onNode(testNode());
      startUp.start(tasks, new KubeClient({ clock: systemClock, auth, transport }));
      const stored = await eventually("the events are there", () => {
        const found = fake.store.list(EVENTS);
        return found.length === reasons.length && found;
      });
      assertEquals<unknown>(stored.map(({ reason }) => reason).sort(), reasons);
      for (const event of stored) {
        assertEquals(event.reportingInstance, "kube-proxy-host-a");
        assertEquals(event.regarding, { apiVersion: "v1", kind: "Node", name: "node-a" });
      }
      tasks.stop();
      await tasks.ended();
    }));
}

for (
  const [argv, by] of [
    [[], "nothing"],
    [["--cluster-cidr=10.0.0.0/8"], "10.0.0.0/8"],
    [["--detect-local-mode=NodeCIDR"], "podCIDRs of the Node"],
    [["--detect-local-mode=BridgeInterface", "--pod-bridge-interface=cbr0"], "interface cbr0"],
  ] as const
) {
  Deno.test(`StartUp logs that pods are distinguished from other clients by ${by}`, () =>
    withStartUp(
      { mode: "iptables", argv: [...MANIFESTS, ...argv] },
      async ({ startUp, logger, tasks }) => {
        startUp.start(tasks, undefined);
        const line = logger.lines.find(({ message }) => message.startsWith("Chose how pods"));
        assertEquals([line?.level, line?.fields.by], ["info", by]);
        await eventually(
          "the OOM score was tried",
          () => logger.lines.some(({ message }) => message.startsWith("Cannot set OOM score")),
        );
      },
    ));
}

const SCORE = { pid: 42, adjust: -999 };

for (const [found, state] of [[-999, "kept"], [0, "changed"]] as const) {
  Deno.test(`setOomScore() reports what it found: ${state}`, async () => {
    const stdout = `pid 42's OOM score adjust value changed from ${found} to -999\n`;
    const commands = new FakeCommandRunner().on("choom -n -999 -p 42", { stdout });
    assertEquals(await setOomScore(commands, SCORE), { state });
    assertEquals(commands.calls.length, 1);
  });
}

Deno.test("setOomScore() reports why it was refused", async () => {
  const reason = "choom: failed to set score adjust value: Permission denied";
  const commands = new FakeCommandRunner().on("choom -n", { code: 1, stderr: `${reason}\n` });
  assertEquals(await setOomScore(commands, SCORE), { state: "refused", reason });
});

Deno.test("setOomScore() treats a missing tool as a refusal", async () => {
  const commands = new FakeCommandRunner().failNext("not-found");
  assertEquals((await setOomScore(commands, SCORE)).state, "refused");
});
