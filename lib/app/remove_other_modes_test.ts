import { assertEquals } from "@std/assert";
import { FakeBackend } from "../../tests/support/fake_backend.ts";
import { MemoryLogger } from "../../tests/support/memory_logger.ts";
import { loadConfiguration } from "../config/load.ts";
import { parseFlags } from "../config/parse_flags.ts";
import type { CleanupReport } from "../proxy/backend.ts";
import type { Dependencies } from "./dependencies.ts";
import { removeOtherModes } from "./remove_other_modes.ts";

/** Has left something, and cannot remove something else. */
class LeavingBackend extends FakeBackend {
  override cleanup(): Promise<CleanupReport> {
    return Promise.resolve({ removed: [`chain of ${this.family}`], failed: ["a set"] });
  }
}

/** What is logged when a user with this id runs in iptables mode. */
async function logOf(uid: number, signal = new AbortController().signal): Promise<string[]> {
  const logger = new MemoryLogger();
  const dependencies: Partial<Dependencies> = {
    backends: {
      iptables: () => {
        throw new Error("the mode that runs is left alone");
      },
      userspace: (_, { family }) => new LeavingBackend(family),
    },
    process: { uid } as Dependencies["process"],
  };
  const configuration = await loadConfiguration({
    uid: 0,
    env: () => undefined,
    readTextFile: () => Promise.reject(new Error("no file was thought to be read")),
  }, { flags: parseFlags(["--control-socket=/run/t/control.sock"]).values });
  await removeOtherModes({ ...dependencies as Dependencies, logger }, {
    mode: "iptables",
    configuration,
    signal,
  });
  return logger.lines.map(({ level, fields }) => `${level} ${fields.other} ${fields.what}`);
}

Deno.test("removeOtherModes() cleans up after each mode but the one that runs", async () => {
  assertEquals(await logOf(0), [
    "info userspace chain of IPv4",
    "warn userspace a set",
    "info userspace chain of IPv6",
    "warn userspace a set",
  ]);
});

Deno.test("removeOtherModes() touches nothing as a plain user, or once the caller gave up", async () => {
  assertEquals(await logOf(1000), []);
  assertEquals(await logOf(0, AbortSignal.abort()), []);
});
