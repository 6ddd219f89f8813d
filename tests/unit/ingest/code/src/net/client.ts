/* Copyright 2024 Somebody. */
import { Socket, type Address as Addr } from "./socket";
import * as util from "../util/index.js";
import axios from "axios";
export { helper } from "./helpers";

/** How long to wait. */
export const TIMEOUT_MS = 5_000;

export type Handler = (message: string) => void;

/** Options of a client. */
export interface Options extends Base<string>, util.Other {
  url: string;
  retry?(times: number): void;
}

export enum State { Open, Closed }

/**
 * Talks to a server. Keeps one connection.
 * @public
 */
@Injectable()
export class Client<T> extends Socket implements Options {
  static count = 0;
  private handlers: Handler[] = [];

  constructor(private url: string) {
    super(url);
  }

  /** Sends a message. */
  @logged("debug")
  async send(message: T): Promise<void> {
    this.open();
    await util.retry(() => axios.post(this.url, message));
  }

  open(): void;
  open(force: boolean): void;
  open(force?: boolean): void {
    connect(this.url, force);
  }

  onClose = () => {
    this.send("bye");
  };
}

function connect(url: string): void;
function connect(url: string, force?: boolean): void {
  new Client(url);
}

export const make = async (url: string): Promise<Client<string>> => {
  return new Client(url);
};

export default function () {
  return make("");
}

namespace Internal {
  export function hidden() {}
}

describe("client", () => {
  it("sends", async () => {
    await make("x").send("y");
  });
});
