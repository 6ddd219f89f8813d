<?php
declare(strict_types=1);

namespace App\Service;

use App\Model\{User, Mail as Letter};
use Psr\Log\LoggerInterface;

require_once __DIR__ . '/functions.php';

const LIMIT = 3;

/**
 * Sends mail. Slowly.
 */
#[AsService]
final class Mailer extends Base implements MailerInterface
{
    use LoggerTrait;
    public const MAX = 10;
    private $queue = [];

    public function __construct(private LoggerInterface $logger) {}

    /**
     * Sends one.
     * @return bool
     */
    public function send(User $user): bool
    {
        $this->log('x');
        $letter = new Letter($user);
        self::check($letter);
        Queue::push($letter);
        return deliver($letter);
    }

    private static function check($x) { return strlen($x); }
}

function deliver($letter) { return true; }
interface MailerInterface { public function send(User $user): bool; }
enum Status: string { case Open = 'o'; }
