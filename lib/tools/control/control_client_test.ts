import { assert, assertMatch, assertRejects } from "@std/assert";
import { withFolder } from "../../../tests/support/with_folder.ts";
import { askControl, ControlError } from "./control_client.ts";

/** Another program on the socket, which gives every request the same answer. */
async function withImpostor(
  answer: () => Response,
  run: (path: string) => Promise<void>,
): Promise<void> {
  await withFolder(async (folder) => {
    const path = `${folder}/control.sock`;
    await using _server = Deno.serve({ transport: "unix", path, onListen: () => {} }, answer);
    await run(path);
  });
}

Deno.test.each(["null", "[]", "{}", "7", "\x1b[2Jhello", `{"families":1}`, `{"packets":{}}`, ""])(
  "askControl() reports that the answer %j is not from kube-relay",
  async (text) => {
    await withImpostor(() => new Response(text), async (path) => {
      for (
        const ask of [
          () => askControl(path, "/status"),
          () => askControl(path, "/changes"),
          () => askControl(path, "/explain", { from: "node", to: "x" }),
        ]
      ) {
        const { message } = await assertRejects(ask, ControlError);
        assertMatch(message, /^[^\p{Cc}]*is not kube-relay, or is one of another release$/u);
      }
    });
  },
);

Deno.test("askControl() prints nothing of a reason that moves the cursor, and not all of a long one", async () => {
  const reason = `\x1b[2J\n${"x".repeat(10_000)}`;
  await withImpostor(() => new Response(reason, { status: 500 }), async (path) => {
    const { message } = await assertRejects(
      () => askControl(path, "/status"),
      ControlError,
      "says: \\u001b[2J",
    );
    assertMatch(message, /^[^\p{Cc}]{1000,1200}$/u);
  });
});

Deno.test("askControl() follows no other address", async () => {
  const headers = { location: "http://192.0.2.1/" };
  await withImpostor(() => new Response(null, { status: 302, headers }), async (path) => {
    await assertRejects(() => askControl(path, "/status"), ControlError, "says: status 302");
  });
});

Deno.test("askControl() stops reading an error that has no end", async () => {
  let pulled = 0;
  const endless = () =>
    new ReadableStream<Uint8Array<ArrayBuffer>>({
      pull: (controller) => controller.enqueue(new Uint8Array((pulled++, 16_384))),
    });
  await withImpostor(() => new Response(endless(), { status: 500 }), async (path) => {
    await assertRejects(() => askControl(path, "/status"), ControlError, "more than 65536 bytes");
  });
  assert(pulled < 1000, `${pulled}`);
});
