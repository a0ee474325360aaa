/**
 * A program: the fake API server in its own process, so that it can run in a namespace and be
 * frozen. It writes a kubeconfig to the given path, prints `ready`, executes the lines of its
 * standard input, prints a line for each, and ends with its input.
 */
import type { RawObject } from "../../conformance/server.ts";
import { FakeApiServer } from "./fake_api_server.ts";
import { collectionOf, keyOf } from "./fake_api_store.ts";
import { writeKubeconfig } from "../builders/kubeconfig_file.ts";

/** A request to the program. */
export type FakeApiRequest =
  /** Creates or replaces objects, then deletes others. */
  | {
    readonly do: "write";
    readonly objects: readonly RawObject[];
    readonly deleted: readonly RawObject[];
  }
  /** Closes all connections and stops listening; the objects stay. */
  | { readonly do: "close" }
  | { readonly do: "reopen" };

async function answer(server: FakeApiServer, request: FakeApiRequest): Promise<void> {
  switch (request.do) {
    case "write":
      for (const object of request.objects) {
        if (server.store.get(collectionOf(object), keyOf(object))) server.store.update(object);
        else server.store.create(object);
      }
      for (const object of request.deleted) server.store.delete(object);
      return;
    case "close":
      return await server.kill();
    case "reopen":
      return await server.restart();
  }
}

/** The answer to each line, and the announcement at the beginning. */
function say(text: string): void {
  // deno-lint-ignore no-console -- the answer
  console.log(text);
}

if (import.meta.main) {
  const server = await FakeApiServer.start();
  const { url, ca } = server;
  const user = { token: server.rotateToken() };
  await writeKubeconfig(Deno.args[0] ?? "", { server: url, ca, user });
  say("ready");
  let rest = "";
  for await (const text of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      say(await answer(server, JSON.parse(line)).then(() => "done", (error) => `${error}`));
    }
  }
  Deno.exit(0);
}
