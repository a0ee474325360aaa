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
import { StartUp } from "./start_up.ts";
import { TEST_PROCESS } from "../../../tests/support/fakes/test_dependencies.ts";
import { configurationOf } from "../../../tests/support/drivers/own_flags.ts";

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

Deno.test("StartUp is quiet for a plain user without a cluster, if the OOM score is refused", () =>
  withStartUp({ mode: "userspace", argv: MANIFESTS }, async ({ startUp, logger, tasks }) => {
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

for (
  const [name, choom, fields] of [
    ["had it", { stdout: "value changed from -999 to -999\n" }, { state: "kept" }],
    ["had another", { stdout: "value changed from 0 to -999\n" }, { state: "changed" }],
    ["may not set it", { code: 1, stderr: "choom: denied\n" }, { reason: "choom: denied" }],
    ["has no tool", undefined, { reason: "choom failed" }],
  ] as const
) {
  Deno.test(`StartUp sets the OOM score of a process that ${name}`, () =>
    withStartUp({ mode: "iptables", argv: MANIFESTS }, async ({ startUp, ...stage }) => {
      const { commands, logger, tasks } = stage;
      if (choom) commands.on("choom -n -999 -p 42", choom);
      else commands.failNext("not-found");
      startUp.start(tasks, undefined);
      const line = await eventually(
        "the OOM score was tried",
        () => logger.lines.find(({ message }) => message.includes("OOM score")),
      );
      if (choom) assertEquals(line.fields, { adjust: -999, ...fields });
      else assert(line.message.startsWith("Cannot set OOM score"));
    }));
}
