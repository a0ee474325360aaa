import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { eventually } from "../../../tests/support/eventually.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { runTool } from "../../../tests/support/drivers/run_tool.ts";
import { ConfigurationChanged } from "../../config/configuration_watch.ts";
import { loadConfiguration } from "../../config/load.ts";
import type { AdjustableLogger } from "../../log/logger.ts";
import { systemClock } from "../../os/clock.ts";
import { startConfigurationReload } from "./configuration_reload.ts";
import { TaskGroup } from "../../engine/task_group.ts";
import { TEST_PROCESS } from "../../../tests/support/fakes/test_dependencies.ts";

const BASE = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
const HEAD = `${BASE}networkPolicy: {enabled: true}\n`;

class AdjustableMemoryLogger extends MemoryLogger implements AdjustableLogger {
  verbosity = 0;
  patterns: readonly unknown[] = [];
  setVerbosity(level: number): void {
    this.verbosity = level;
  }
  setVmodule(entries: readonly unknown[]): void {
    this.patterns = entries;
  }
}

async function startReload(
  path: string,
  tasks: TaskGroup,
  onLoaded: () => Promise<void> = () => Promise.resolve(),
) {
  await Deno.writeTextFile(path, HEAD);
  const logger = new AdjustableMemoryLogger();
  const flags = { config: path };
  const loaded = await loadConfiguration(
    { uid: 0, env: () => undefined, readTextFile: (file) => Deno.readTextFile(file) },
    { flags },
  );
  await onLoaded();
  const [results, masqueraded, denials]: [string[], boolean[], string[]] = [[], [], []];
  const current = { proxy: loaded.proxy };
  startConfigurationReload(
    {
      ...{ clock: systemClock, process: TEST_PROCESS, logger },
      metrics: { configReloaded: (result) => void results.push(result) },
    },
    tasks,
    {
      configuration: {
        ...loaded,
        mode: "iptables",
        requestedMode: loaded.mode,
        families: ["IPv4"],
        flags,
      },
      current,
      changes: { configurationChanged() {} },
      services: {
        setConfiguration: (proxy) => void masqueraded.push(proxy.iptables.masqueradeAll),
      },
      controllers: [{}, {
        onConfiguration: () => void denials.push(current.proxy.networkPolicy.deny),
      }],
    },
  );
  await eventually("the file is looked at", () => logger.lines.length > 0);
  return { logger, current, results, masqueraded, denials };
}

Deno.test("startConfigurationReload() passes changes on, and ends the program for changes that it cannot apply", async () => {
  const folder = await Deno.makeTempDir();
  const tasks = new TaskGroup(new AbortController().signal);
  const path = `${folder}/c.yaml`;
  try {
    const { logger, current, results, masqueraded } = await startReload(path, tasks);
    await Deno.writeTextFile(
      path,
      `${HEAD}logging: {verbosity: 4, vmodule: [{filePattern: a, verbosity: 5}]}\n`,
    );
    await eventually("the log has changed", () => logger.verbosity === 4);
    assertEquals([logger.patterns, masqueraded], [[{ filePattern: "a", verbosity: 5 }], []]);
    logger.setVerbosity(9);
    await Deno.writeTextFile(
      path,
      `${HEAD}logging: {verbosity: 4, vmodule: [{filePattern: a, verbosity: 5}]}\niptables: {masqueradeAll: true}\n`,
    );
    await eventually("Services take it", () => masqueraded.length === 1);
    assertEquals([current.proxy.iptables.masqueradeAll, current.proxy.mode], [true, "iptables"]);
    assertEquals(logger.verbosity, 9, "what was set elsewhere stays");
    assertEquals(masqueraded, [true]);
    await Deno.writeTextFile(path, `${HEAD}oomScoreAdj: 5\n`);
    await tasks.stopped();
    const error = await assertRejects(() => tasks.ended(), ConfigurationChanged);
    assertStringIncludes(error.message, "oomScoreAdj changed, which needs a restart");
    assertEquals(results, ["applied", "applied", "restart"]);
  } finally {
    tasks.stop();
    await tasks.ended().catch(() => {});
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("startConfigurationReload() reads no pipe for a second time", async () => {
  const folder = await Deno.makeTempDir();
  const tasks = new TaskGroup(new AbortController().signal);
  const path = `${folder}/pipe`;
  try {
    const { logger } = await startReload(path, tasks, async () => {
      await Deno.remove(path);
      await runTool("mkfifo", [path]);
    });
    tasks.stop();
    await tasks.ended();
    const messages = logger.lines.map(({ message }) => message);
    assertEquals(messages, ["Configuration was read from a pipe; changes are not watched"]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
