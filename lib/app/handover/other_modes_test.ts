import { assertEquals } from "@std/assert";
import { FakeBackend } from "../../../tests/support/fakes/fake_backend.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { CleanupReport } from "../../engine/data_plane.ts";
import type { Dependencies } from "../dependencies.ts";
import { OtherModes } from "./other_modes.ts";
import { configurationOf } from "../../../tests/support/drivers/own_flags.ts";

/** A machine on which modes leave things. */
class Stage implements AsyncDisposable {
  readonly logger = new MemoryLogger();
  failed: readonly string[] = [];
  readonly #folder: string;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  static async create(): Promise<Stage> {
    return new Stage(await Deno.makeTempDir());
  }

  /** Runs a mode: starts, and serves. Returns the log. */
  async run(mode: BackendMode, options: { serves?: boolean; stateDir?: string } = {}) {
    const { serves = true, stateDir = `${this.#folder}/state` } = options;
    const backend = (name: string) => (_: unknown, { family }: { family: "IPv4" | "IPv6" }) => {
      const report = { removed: [`${name} ${family}`], failed: this.failed };
      return new class extends FakeBackend {
        override cleanup(): Promise<CleanupReport> {
          return Promise.resolve(report);
        }
      }(family);
    };
    const dependencies: Partial<Dependencies> = {
      backends: { iptables: backend("rules"), userspace: backend("addresses") },
    };
    const configuration = await configurationOf([
      ...[`--state-dir=${stateDir}`, "--control-socket=/run/t/control.sock"],
    ]);
    const { logger } = this;
    const modes = new OtherModes({ ...dependencies as Dependencies, logger }, {
      mode,
      configuration,
    });
    await modes.note();
    if (serves) await modes.remove(new AbortController().signal);
    return logger.lines.splice(0).map(({ level, fields }) => `${level} ${fields.what}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.#folder, { recursive: true });
  }
}

Deno.test("OtherModes cleans up after a mode that has run before, once", async () => {
  await using stage = await Stage.create();
  assertEquals(await stage.run("iptables"), [], "nothing else has run");
  assertEquals(await stage.run("iptables"), []);
  assertEquals(await stage.run("userspace"), ["info rules IPv4", "info rules IPv6"]);
  assertEquals(await stage.run("userspace"), []);
  assertEquals(await stage.run("iptables"), ["info addresses IPv4", "info addresses IPv6"]);
});

Deno.test("OtherModes remembers a mode that never served", async () => {
  await using stage = await Stage.create();
  await stage.run("iptables");
  assertEquals(await stage.run("userspace", { serves: false }), []);
  assertEquals(await stage.run("iptables"), ["info addresses IPv4", "info addresses IPv6"]);
});

Deno.test("OtherModes retries failed removals at the next start", async () => {
  await using stage = await Stage.create();
  await stage.run("iptables");
  stage.failed = ["a chain"];
  assertEquals((await stage.run("userspace")).filter((line) => line.startsWith("warn")), [
    "warn a chain",
    "warn a chain",
  ]);
  stage.failed = [];
  assertEquals((await stage.run("userspace")).length, 2);
});

Deno.test("OtherModes removes nothing if it cannot keep a record", async () => {
  await using stage = await Stage.create();
  assertEquals(await stage.run("iptables", { stateDir: "/dev/null/state" }), [
    ...["warn undefined", "warn undefined", "warn undefined"],
  ]);
});
