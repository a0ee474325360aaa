/**
 * `/debug/flags/v`: changes the verbosity of the log of a running process. Nothing else can be
 * changed through the metrics port.
 *
 * @module
 */
import type { IpAddress } from "../net/ip_address.ts";
import { isLocalRequest } from "./local_request.ts";
import { answerNotFound, answerText } from "./plain_answer.ts";

/** Highest verbosity with an effect. */
const MAX_LEVEL = 10;
/** Longer than any level; a longer body is not read to the end. */
const MAX_BODY_BYTES = 16;

/** The request and the setting. */
interface LogLevelOptions {
  readonly setVerbosity: (level: number) => void;
  /** The client's address. */
  readonly peer: IpAddress | undefined;
}

/**
 * Sets the verbosity to the number in the body of a PUT; 406 for other methods, as upstream. 404
 * for other machines, and for a name in the Host header, under which a web page could make a
 * browser on this machine ask (DNS rebinding).
 */
export async function answerLogLevel(
  request: Request,
  { setVerbosity, peer }: LogLevelOptions,
): Promise<Response> {
  if (!isLocalRequest(request, peer)) return answerNotFound();
  if (request.method !== "PUT") return answerText("Only PUT is answered here\n", 406);
  const text = await readBody(request);
  if (text === undefined || !/^\d{1,2}$/.test(text) || Number(text) > MAX_LEVEL) {
    const found = text === undefined ? "a longer text" : `'${text}'`;
    return answerText(`Expected a level from 0 to ${MAX_LEVEL}, found ${found}\n`, 400);
  }
  setVerbosity(Number(text));
  return answerText(`Verbosity is ${text} now\n`);
}

/** Returns the trimmed body; `undefined` if it is too long. */
async function readBody({ body }: Request): Promise<string | undefined> {
  let text = "";
  if (body === null) return text;
  for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    if (text.length > MAX_BODY_BYTES) return undefined;
  }
  return text.trim();
}
