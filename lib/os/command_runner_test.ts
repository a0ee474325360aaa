import { assertEquals, assertInstanceOf, assertRejects, assertStringIncludes } from "@std/assert";
import { eventually } from "../../tests/support/eventually.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { CommandError, createCommandRunner, systemCommandRunner } from "./command_runner.ts";

const run = systemCommandRunner.run;

function* halfAText(): Generator<string> {
  yield "half of ".repeat(20_000);
  throw new RangeError("cannot render");
}

async function exists(path: string): Promise<boolean> {
  return await Deno.stat(path).then(() => true, () => false);
}

Deno.test("systemCommandRunner returns exit code, output and errors apart", async () => {
  const result = await run("sh", ["-c", "echo out; echo err >&2; exit 3"]);
  assertEquals(result, { code: 3, stdout: "out\n", stderr: "err\n" });
});

Deno.test("systemCommandRunner gives each argument as it is, without a shell", async () => {
  const { stdout } = await run("printf", ["%s|", "a b", "$HOME", ";ls", ""]);
  assertEquals(stdout, "a b|$HOME|;ls||");
});

Deno.test("systemCommandRunner sets LC_ALL=C", async () => {
  assertEquals((await run("sh", ["-c", "echo $LC_ALL"])).stdout, "C\n");
});

Deno.test("systemCommandRunner writes input while it reads output: 5 MB both ways", async () => {
  const line = "10.96.0.1 – Ω 😀 input that is longer than any pipe\n";
  const lines = Math.ceil(5_000_000 / line.length);
  function* pieces() {
    for (let i = 0; i < lines; i++) yield line;
  }
  const { code, stdout } = await run("cat", [], { stdin: pieces() });
  assertEquals(code, 0);
  // Compared with ===, since a failing assertEquals would print a diff of 5 MB.
  assertEquals(stdout === line.repeat(lines), true);
});

Deno.test("systemCommandRunner writes one long text whole, characters unbroken", async () => {
  const text = "😀".repeat(100_000);
  assertEquals((await run("cat", [], { stdin: `x${text}` })).stdout === `x${text}`, true);
  const growing = ["", "é", "\u{1f600}", "", "é".repeat(100_000), "z"];
  assertEquals((await run("cat", [], { stdin: growing })).stdout === growing.join(""), true);
  assertEquals((await run("cat", [])).stdout, "");
});

Deno.test("systemCommandRunner ends an empty input at once", async () => {
  assertEquals((await run("cat", [], { stdin: "" })).stdout, "");
});

Deno.test("systemCommandRunner reports the exit code of a tool that does not read its input", async () => {
  const stdin = "x".repeat(5_000_000);
  const result = await run("sh", ["-c", "exec 0<&-; echo line 7 is bad >&2; exit 2"], { stdin });
  assertEquals(result, { code: 2, stdout: "", stderr: "line 7 is bad\n" });
});

Deno.test("systemCommandRunner reports the signal that ends a tool", async () => {
  for (const [signal, kind] of [["SEGV", "crashed"], ["ABRT", "crashed"], ["KILL", "killed"]]) {
    const error = await assertRejects(() => run("sh", ["-c", `kill -${signal} $$`]));
    assertInstanceOf(error, CommandError);
    assertEquals(error.kind, kind);
    assertStringIncludes(error.message, `to its end: it was ended by SIG${signal}`);
  }
});

Deno.test("systemCommandRunner kills a tool whose input cannot be made, before it sees the end", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const script = `cat >/dev/null; touch ${folder}/applied`;
    const error = await assertRejects(() => run("sh", ["-c", script], { stdin: halfAText() }));
    assertInstanceOf(error, CommandError);
    assertEquals(error.kind, "failed");
    assertStringIncludes(error.message, "cannot render");
    assertEquals(await exists(`${folder}/applied`), false);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

for (const stream of ["", " >&2"]) {
  Deno.test(`systemCommandRunner stops a tool that prints endlessly${stream}`, async () => {
    const line = "x".repeat(4000);
    const error = await assertRejects(() => run("sh", ["-c", `exec yes ${line}${stream}`]));
    assertInstanceOf(error, CommandError);
    assertEquals(error.kind, "failed");
    assertStringIncludes(error.message, "it printed more than 134217728 characters");
  });
}

Deno.test("createCommandRunner() ends a command that takes longer than its time-out", async () => {
  const clock = new FakeClock();
  const running = createCommandRunner(clock).run("sleep", ["1000"], { timeoutMs: 500 });
  const failing = assertRejects(() => running, CommandError, "did not end within 500 ms");
  await clock.advance(500);
  const error = await failing;
  assertInstanceOf(error, CommandError);
  assertEquals(error.kind, "timeout");
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("createCommandRunner() kills a command that ignores SIGTERM one second later", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const clock = new FakeClock();
    // `read` from a pipe without a writer waits without a child of its own.
    const script = `trap '' TERM; mkfifo ${folder}/f; touch ${folder}/ready; read x <>${folder}/f`;
    const running = createCommandRunner(clock).run("sh", ["-c", script], { timeoutMs: 500 });
    const failing = assertRejects(() => running, CommandError, "did not end within 500 ms");
    await eventually("the script runs", () => exists(`${folder}/ready`));
    await clock.advance(1_500);
    await failing;
    assertEquals(clock.pendingTimers, 0);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("createCommandRunner() does not wait for a grandchild that holds the output open", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const clock = new FakeClock();
    const script = `sleep 3 & echo $$ > '${folder}/pid'`;
    const running = createCommandRunner(clock).run("sh", ["-c", script]);
    const failing = assertRejects(() => running, CommandError, "did not end within 30000 ms");
    await eventually("the script has ended", async () => {
      const pid = (await Deno.readTextFile(`${folder}/pid`).catch(() => "")).trim();
      if (pid === "") return false;
      const { success } = await new Deno.Command("sh", { args: ["-c", `kill -0 ${pid} 2>&-`] })
        .output();
      return !success;
    });
    await clock.advance(31_000);
    await failing;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("systemCommandRunner ends a command when its caller gives up", async () => {
  const giveUp = new AbortController();
  const running = run("sleep", ["1000"], { signal: giveUp.signal });
  giveUp.abort(new Error("stopping"));
  const error = await assertRejects(() => running);
  assertInstanceOf(error, CommandError);
  assertEquals(error.kind, "aborted");
});

Deno.test("systemCommandRunner starts nothing for a caller that has given up", async () => {
  const error = await assertRejects(() => run("no-such-tool", [], { signal: AbortSignal.abort() }));
  assertInstanceOf(error, CommandError);
  assertEquals(error.kind, "aborted");
});

Deno.test("systemCommandRunner names the package of a missing tool", async () => {
  // A missing path, because the machine of the test may have the tool itself.
  const error = await assertRejects(() => run("/nonexistent/ip", []));
  assertInstanceOf(error, CommandError);
  assertEquals(error.kind, "not-found");
  assertStringIncludes(error.message, "Debian package iproute2");
});

Deno.test("systemCommandRunner distinguishes a file that may not be executed from a missing one", async () => {
  const file = await Deno.makeTempFile();
  try {
    const error = await assertRejects(() => run(file, []));
    assertInstanceOf(error, CommandError);
    assertEquals(error.kind, "not-permitted");
  } finally {
    await Deno.remove(file);
  }
});

Deno.test({
  name: "systemCommandRunner names the cure for a program that the permissions leave out",
  permissions: { run: ["true"] },
  async fn() {
    const error = await assertRejects(() => run("sh", []));
    assertInstanceOf(error, CommandError);
    assertEquals(error.kind, "not-permitted");
    assertStringIncludes(error.message, "ALLOW_RUN_EXTRA=sh");
  },
});

Deno.test("run() passes lines on as they arrive, and pauses the command meanwhile", async () => {
  const lines: string[] = [];
  let open = 0;
  const { stdout, code } = await systemCommandRunner.run("seq", ["1", "100000"], {
    onLine(line) {
      assertEquals(open, 0, "one line at a time");
      lines.push(line);
      if (lines.length % 10_000 !== 0) return;
      open++;
      return new Promise((resolve) => setTimeout(resolve, 0)).then(() => void open--);
    },
  });
  assertEquals([stdout, code, lines.length, lines.at(-1)], ["", 0, 100_000, "100000"]);
});

Deno.test("run() ends the command when the receiver of its lines throws", async () => {
  const error = await assertRejects(
    () =>
      systemCommandRunner.run("yes", [], {
        onLine() {
          throw new Error("enough");
        },
      }),
    CommandError,
    "Cannot run 'yes': enough",
  );
  assertEquals(error.kind, "failed");
});

Deno.test("run() ends the command when the receiver throws, also where it prints nothing more", async () => {
  for (const output of ["onLine", "onErrorLine"]) {
    const enough = () => {
      throw new Error("enough");
    };
    const script = `echo line${output === "onLine" ? "" : " >&2"}; exec sleep 60`;
    const error = await assertRejects(
      () => systemCommandRunner.run("sh", ["-c", script], { [output]: enough, timeoutMs: 20_000 }),
      CommandError,
      "enough",
    );
    assertEquals(error.kind, "failed");
  }
});

Deno.test("run() passes lines of both outputs on", async () => {
  const lines: string[] = [];
  const take = (line: string) => void lines.push(line);
  const result = await systemCommandRunner.run("sh", ["-c", "echo out; printf error >&2"], {
    onLine: take,
    onErrorLine: take,
  });
  assertEquals([lines.toSorted(), result], [["error", "out"], { code: 0, stdout: "", stderr: "" }]);
});

Deno.test("run() cuts a line that never ends, and a character never", async () => {
  const lines: string[] = [];
  const script =
    "printf '1 \\342\\202'; sleep 0.05; printf '\\254\\n'; yes x | head -c 600000 | tr -d '\\n'";
  await systemCommandRunner.run("sh", ["-c", script], { onLine: (line) => void lines.push(line) });
  assertEquals([lines[0], lines[1]?.length], ["1 €", 64 * 1024]);
});
