/**
 * Tests the live view on a real pseudo-terminal: its content, its end, and that it restores the
 * terminal. The test provides the answers.
 */
import { assert, assertEquals } from "@std/assert";
import type { ChangeEntry, ChangesReport } from "../lib/tools/changes/change_entry.ts";
import { startControlServer } from "../lib/tools/control/control_server.ts";
import type { StatusReport } from "../lib/tools/status/status_report.ts";
import { permissionFlags } from "../lib/os/permissions.ts";
import { eventually } from "./support/eventually.ts";
import { isMissing } from "./support/requirement.ts";
import { testStatusFamily, testStatusReport } from "./support/builders/status_reports.ts";
import { TerminalProcess } from "./support/drivers/terminal_process.ts";

const MAIN = new URL("../main.ts", import.meta.url).pathname;
const SIZE = { columns: 80, rows: 24 };

async function has(program: string): Promise<boolean> {
  try {
    await new Deno.Command(program, { args: ["--version"], stdout: "null", stderr: "null" })
      .output();
    return true;
  } catch {
    return false;
  }
}

const ignore = isMissing("the live view on a terminal", [
  ["script of util-linux", await has("script")],
  ["stty", await has("stty")],
]);

/** The answers of kube-relay. */
class Answers {
  phase = "serving";
  changes: ChangeEntry[] = [];
  #server: Awaited<ReturnType<typeof startControlServer>> | undefined;

  constructor(readonly socket: string) {}

  async start(): Promise<void> {
    this.#server = await startControlServer({
      path: this.socket,
      routes: {
        "/status": () => Promise.resolve(this.#status()),
        "/changes": () => Promise.resolve(this.#report()),
      },
    });
  }

  async stop(): Promise<void> {
    await this.#server?.stop();
    this.#server = undefined;
  }

  change(name: string): void {
    const sequence = this.changes.length + 1;
    this.changes.push({
      ...{ kind: "sync", sequence, at: new Date().toISOString(), family: "IPv4" },
      outcome: "applied",
      tookMs: 4,
      lines: [
        { text: `EndpointSlice ${name}-1 updated`, object: `${name}-1` },
        { text: `-> ${name}/TCP: 2 -> 3 endpoints`, tone: "effect", item: `${name}/TCP` },
      ],
    });
  }

  #status(): StatusReport {
    const at = new Date().toISOString();
    return testStatusReport({
      ...{ startedAt: at, phase: this.phase },
      sources: [{ name: "manifests", state: "3 objects", problems: [] }],
      families: [testStatusFamily({
        mode: "nftables",
        lastSync: { at, durationMs: 4, full: false, services: 3, operations: { lines: 2 } },
        quarantined: [{ key: "ns1/bad/TCP" as never, reason: "in use" }],
      })],
    });
  }

  #report(): ChangesReport {
    const syncs = this.changes.map((_, index) => ({
      ...{ family: "IPv4", at: index, durationMs: index + 1, outcome: "applied" } as const,
    }));
    return { entries: this.changes, forgotten: 0, syncs };
  }
}

/** Runs a test with a watched kube-relay and a terminal. */
async function onTerminal(
  test: (stage: { answers: Answers; terminal: TerminalProcess }) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir();
  const answers = new Answers(`${folder}/control.sock`);
  const flags = [...permissionFlags(), "--no-prompt", "--unstable-net", "--quiet", "--no-check"];
  const watch = [MAIN, "status", "--watch", "--control-socket", answers.socket];
  try {
    await answers.start();
    const command = [Deno.execPath(), "run", ...flags, ...watch];
    await using terminal = new TerminalProcess({ folder, command, ...SIZE });
    await test({ answers, terminal });
  } finally {
    await answers.stop();
    await Deno.remove(folder, { recursive: true });
  }
}

function has24Rows(screen: TerminalProcess["screen"]): boolean {
  return screen.lines.length === SIZE.rows;
}

Deno.test({
  name: "status --watch shows the state, follows changes without flicker, and ends with q",
  ignore,
  fn: () =>
    onTerminal(async ({ answers, terminal }) => {
      answers.change("ns1/web");
      await terminal.shows("the state", ({ text }) => text.includes("ns1/web-1 updated"));
      const { screen } = terminal;
      assert(screen.isAlternate && !screen.isCursorVisible && has24Rows(screen), screen.text);
      for (const text of ["serving", "Node    node-a", "quarantine  ns1/bad/TCP", "q quits"]) {
        assert(screen.text.includes(text), `${text}\n${screen.text}`);
      }
      for (let count = 0; count < 40; count++) answers.change("ns2/other");
      await terminal.shows("later changes", ({ text }) => text.includes("ns2/other/TCP 40"));
      assert(!screen.text.includes("ns1/web-1"), screen.text);
      await terminal.type("\x1b[5~".repeat(30));
      await terminal.shows("the oldest", ({ text }) => text.includes("ns1/web-1"));
      await terminal.type("/web\r");
      await terminal.shows("only web", ({ text }) => !/ns2.*updated/.test(text));
      assertEquals([screen.blanked, screen.overflows], [0, 0]);
      await terminal.type("q");
      assertEquals(await terminal.ended(), { code: 0, isRestored: true });
      assert(!screen.isAlternate && screen.isCursorVisible);
    }),
});

Deno.test({
  name: "status --watch continues when kube-relay is started again",
  ignore,
  fn: () =>
    onTerminal(async ({ answers, terminal }) => {
      await terminal.shows("the state", ({ text }) => text.includes("serving"));
      await answers.stop();
      await terminal.shows("its absence", ({ text }) => text.includes("not running since"));
      assert(terminal.screen.text.includes("node-a"), "what was known stays");
      answers.phase = "waiting for objects";
      await answers.start();
      await terminal.shows("its return", ({ text }) => text.includes("waiting for objects"));
      await terminal.type("\x03");
      assertEquals(await terminal.ended(), { code: 0, isRestored: true });
    }),
});

Deno.test({
  name: "status --watch fits the terminal when that changes its size",
  ignore,
  fn: () =>
    onTerminal(async ({ answers, terminal }) => {
      for (let count = 0; count < 40; count++) answers.change("ns1/web");
      await terminal.shows("the state", (screen) => has24Rows(screen));
      await terminal.resize({ columns: 132, rows: 40 });
      await terminal.shows("40 rows", ({ lines }) => lines.length === 40);
      await terminal.resize({ columns: 40, rows: 8 });
      await terminal.shows("8 rows", ({ lines }) => {
        return lines.length === 8 && lines.every((line) => line.length <= 40);
      });
      // What was on its way when the size changed could not fit.
      let frame = 0;
      do {
        terminal.screen.overflows = 0;
        const phase = answers.phase = `again${++frame}`;
        await terminal.shows("one more frame", ({ text }) => text.includes(phase));
      } while (terminal.screen.overflows > 0 && frame < 5);
      assertEquals(terminal.screen.overflows, 0);
      await terminal.signal("SIGTERM");
      assertEquals(await terminal.ended(), { code: 0, isRestored: true });
    }),
});

Deno.test({
  name: "status --watch gives the terminal back while it is stopped, and by every signal",
  ignore,
  fn: () =>
    onTerminal(async ({ terminal }) => {
      const { screen } = terminal;
      await terminal.shows("the state", ({ text }) => text.includes("serving"));
      await terminal.signal("SIGTSTP");
      await terminal.shows("the screen of before", ({ isAlternate }) => !isAlternate);
      assert(screen.isCursorVisible);
      await eventually("it is stopped", async () => (await terminal.state()).startsWith("T"));
      await terminal.signal("SIGCONT");
      await terminal.shows("the state again", ({ isAlternate, text }) =>
        isAlternate && text.includes("serving"));
      await terminal.signal("SIGHUP");
      assertEquals(await terminal.ended(), { code: 0, isRestored: true });
      assert(!screen.isAlternate && screen.isCursorVisible);
    }),
});

Deno.test("status --watch needs a terminal, and reports it", async () => {
  const args = ["run", ...permissionFlags(), "--no-prompt", "--unstable-net", "--quiet"];
  const watch = ["--no-check", MAIN, "status", "--watch"];
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [...args, ...watch],
  }).output();
  assertEquals([code, stdout.length], [2, 0]);
  const words = new TextDecoder().decode(stderr);
  assert(words.includes("Cannot watch: standard output is no terminal"), words);
});
